package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	"logplayer.example/target/pb"
)

var data, meta, quarantine, position = []byte("data"), []byte("meta"), []byte("quarantine"), []byte("position")

// Poison is an entry that can never be applied.
type Poison struct {
	Index  uint64
	Reason error
}

func (p Poison) Error() string {
	return fmt.Sprintf("entry %d cannot be understood: %v", p.Index, p.Reason)
}

// Store keeps data and position in one bbolt file. Each change is one transaction, synced before it returns, and the
// rules are checked inside it: bbolt has one writer at a time, so nothing can come in between.
type Store struct {
	db      *bolt.DB
	writing sync.Mutex // held for a whole change
	mutex   sync.Mutex // guards the fields below
	durable Position
	moved   chan struct{} // closed and replaced whenever durable changes
}

// OpenStore opens or makes the file.
func OpenStore(path string) (*Store, error) {
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		return nil, err
	}
	store := &Store{db: db, moved: make(chan struct{})}
	return store, db.Update(func(tx *bolt.Tx) error {
		for _, bucket := range [][]byte{data, meta, quarantine} {
			if _, err := tx.CreateBucketIfNotExists(bucket); err != nil {
				return err
			}
		}
		store.durable, err = load(tx)
		return err
	})
}

// Open admits a session.
func (s *Store) Open(session Session, logID string) (Position, error) {
	return s.change(func(tx *bolt.Tx, at Position) (Position, error) { return Admit(at, session, logID) })
}

// Apply applies a batch. If an entry is poisoned, those before it are applied without it.
func (s *Store) Apply(session Session, batch *pb.Batch) (Position, error) {
	after, err := s.apply(session, batch)
	var poison Poison
	if !errors.As(err, &poison) {
		return after, err
	}
	if before := Before(batch, poison.Index); before != nil {
		if after, err = s.apply(session, before); err != nil {
			return after, err
		}
	}
	at, _ := s.Durable()
	refusal := refuse(at, pb.Reason_POISON, "%v", poison)
	refusal.Index = poison.Index
	return at, refusal
}

func (s *Store) apply(session Session, batch *pb.Batch) (Position, error) {
	return s.change(func(tx *bolt.Tx, at Position) (Position, error) {
		if err := Check(at, session, batch); err != nil {
			return at, err
		}
		for _, delivery := range batch.Deliveries {
			if err := write(tx, delivery); err != nil {
				return at, err
			}
			at.Digest = at.Digest.Add(delivery.Index, delivery.Payload)
		}
		at.Index, at.Chain = batch.To, batch.ToChain
		return at, nil
	})
}

// change runs one transaction; an error rolls it back. Only what was committed becomes visible to readers.
func (s *Store) change(step func(*bolt.Tx, Position) (Position, error)) (Position, error) {
	s.writing.Lock() // bbolt's own lock ends before publish, and readers must see positions in the order of the commits.
	defer s.writing.Unlock()
	var after Position
	err := s.db.Update(func(tx *bolt.Tx) error {
		at, err := load(tx)
		if err != nil {
			return err
		}
		if after, err = step(tx, at); err != nil {
			return err
		}
		encoded, err := json.Marshal(after)
		if err != nil {
			return err
		}
		return tx.Bucket(meta).Put(position, encoded)
	})
	if err == nil {
		s.publish(after)
	}
	return after, err
}

func (s *Store) publish(at Position) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.durable = at
	close(s.moved)
	s.moved = make(chan struct{})
}

// Durable is the position that is committed, and a channel that is closed when it moves.
func (s *Store) Durable() (Position, <-chan struct{}) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.durable, s.moved
}

// Dump prints the data as `logplayer target dump` does.
func (s *Store) Dump() error {
	return s.db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(data).ForEach(func(key, value []byte) error {
			_, err := fmt.Printf("{\"key\": \"%x\", \"value\": \"%x\"}\n", key[1:], value)
			return err
		})
	})
}

func load(tx *bolt.Tx) (at Position, err error) {
	if encoded := tx.Bucket(meta).Get(position); encoded != nil {
		err = json.Unmarshal(encoded, &at)
	}
	return at, err
}

func write(tx *bolt.Tx, delivery *pb.Delivery) error {
	if delivery.Quarantine {
		return tx.Bucket(quarantine).Put(binary.BigEndian.AppendUint64(nil, delivery.Index), delivery.Payload)
	}
	var transaction pb.Transaction
	if err := proto.Unmarshal(delivery.Payload, &transaction); err != nil {
		return Poison{delivery.Index, err}
	}
	for _, mutation := range transaction.Mutations {
		key := append([]byte{'='}, mutation.Key...) // bbolt refuses an empty key, LogPlayer does not.
		var err error
		if mutation.Table != "" { // A row of a table: this store has keys and values only.
			return Poison{delivery.Index, fmt.Errorf("a row of table %q, which this store cannot hold", mutation.Table)}
		}
		switch mutation.Op {
		case pb.Op_PUT:
			err = tx.Bucket(data).Put(key, mutation.Value)
		case pb.Op_DELETE:
			err = tx.Bucket(data).Delete(key)
		default:
			return Poison{delivery.Index, fmt.Errorf("unknown operation %d", mutation.Op)}
		}
		if errors.Is(err, bolt.ErrKeyTooLarge) || errors.Is(err, bolt.ErrValueTooLarge) {
			return Poison{delivery.Index, err}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
