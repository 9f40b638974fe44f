package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/zeebo/xxh3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"logplayer.example/target/pb"
)

// Session orders players (Epoch) and the streams of one player (Term).
type Session struct{ Epoch, Term uint64 }

// Less reports whether s is older than other.
func (s Session) Less(other Session) bool {
	return s.Epoch < other.Epoch || s.Epoch == other.Epoch && s.Term < other.Term
}

// Digest is a sum modulo 2^128, over what was applied.
type Digest struct{ Hi, Lo uint64 }

// Add counts one entry: XXH3-128 over its index (8 bytes, big-endian) and payload.
func (d Digest) Add(index uint64, payload []byte) Digest {
	sum := xxh3.Hash128(append(binary.BigEndian.AppendUint64(nil, index), payload...))
	lo, carry := bits.Add64(d.Lo, sum.Lo, 0)
	hi, _ := bits.Add64(d.Hi, sum.Hi, carry)
	return Digest{hi, lo}
}

// Bytes is the digest as it is sent.
func (d Digest) Bytes() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, d.Hi), d.Lo)
}

// Position is what the store keeps in the same transaction as its data.
type Position struct {
	Index   uint64
	Session Session
	Digest  Digest
	LogID   string
	Chain   []byte // The log's chain value at Index: which of its histories filled this store.
}

// The versions of the protocol that this target speaks.
const oldestVersion, newestVersion = 1, 1

// Agree returns the newest version that both speak, or an error that says which of the two must be upgraded.
func Agree(theirs *pb.Versions, them string) (uint32, error) {
	version := min(theirs.GetNewest(), newestVersion)
	if version >= max(theirs.GetOldest(), oldestVersion) {
		return version, nil
	}
	lagging := them
	if theirs.GetNewest() > newestVersion {
		lagging = "target"
	}
	return 0, status.Errorf(codes.FailedPrecondition,
		"the %s speaks protocol versions %d to %d, the target speaks protocol versions %d to %d: upgrade the %s",
		them, theirs.GetOldest(), theirs.GetNewest(), oldestVersion, newestVersion, lagging)
}

// Refusal is an error, so that returning it rolls the transaction back.
type Refusal struct{ *pb.Refused }

func (r Refusal) Error() string { return r.Reason.String() + ": " + r.Detail }

func refuse(at Position, reason pb.Reason, format string, args ...any) Refusal {
	return Refusal{&pb.Refused{
		Reason: reason, Detail: fmt.Sprintf(format, args...), Index: at.Index, Epoch: at.Session.Epoch, Chain: at.Chain,
	}}
}

// Admit answers an Open. The position that it returns fences every older session once it is stored.
func Admit(at Position, session Session, logID string) (Position, error) {
	switch {
	case at.LogID != "" && at.LogID != logID:
		return at, refuse(at, pb.Reason_WRONG_LOG, "filled from log %q, not %q", at.LogID, logID)
	case session.Epoch < at.Session.Epoch:
		return at, refuse(at, pb.Reason_FENCED, "epoch %d has taken over", at.Session.Epoch)
	case !at.Session.Less(session):
		return at, refuse(at, pb.Reason_STALE_SESSION, "session %v is already open", at.Session)
	}
	at.Session, at.LogID = session, logID
	return at, nil
}

// Check returns why a batch may not be applied at a position, or nil.
func Check(at Position, session Session, batch *pb.Batch) error {
	switch {
	case session.Epoch < at.Session.Epoch:
		return refuse(at, pb.Reason_FENCED, "epoch %d has taken over", at.Session.Epoch)
	case session != at.Session:
		return refuse(at, pb.Reason_STALE_SESSION, "session %v was fenced by %v", session, at.Session)
	case batch.Prev != at.Index:
		return refuse(at, pb.Reason_OUT_OF_SYNC, "batch starts at %d, the target is at %d", batch.Prev, at.Index)
	case !bytes.Equal(batch.PrevChain, at.Chain):
		return refuse(at, pb.Reason_DIVERGED,
			"entry %d here is of another history of the log: its chain value is %x, the batch continues %x",
			at.Index, at.Chain, batch.PrevChain)
	}
	last := batch.Prev
	for _, delivery := range batch.Deliveries {
		if delivery.Index <= last {
			return refuse(at, pb.Reason_BAD_BATCH, "index %d does not rise", delivery.Index)
		}
		last = delivery.Index
	}
	if last > batch.To || batch.To <= batch.Prev {
		return refuse(at, pb.Reason_BAD_BATCH, "indexes leave (%d, %d]", batch.Prev, batch.To)
	}
	return nil
}

// Before returns what of a batch lies before its poisoned entry: up to and including the delivery in front of it, the
// last place whose chain value is known here. It is nil if there is none.
func Before(batch *pb.Batch, poisoned uint64) *pb.Batch {
	var before *pb.Batch
	for i, delivery := range batch.Deliveries {
		if delivery.Index >= poisoned {
			break
		}
		before = &pb.Batch{
			Prev: batch.Prev, PrevChain: batch.PrevChain,
			To: delivery.Index, ToChain: delivery.Chain,
			Deliveries: batch.Deliveries[:i+1],
		}
	}
	return before
}
