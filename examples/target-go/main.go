// A LogPlayer target in Go: the protocol's rules in rules.go, one transaction for each change in store.go, and the
// stream here. It passes every rule of `logplayer conform`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"logplayer.example/target/pb"
)

const messageBytesMax = 64 << 20

type server struct {
	pb.UnimplementedTargetServer
	name  string
	store *Store

	mutex   sync.Mutex
	streams map[Session]int // Streams that are open now.
}

// Play is one session. Messages are handled one after the other; gRPC's flow control bounds what waits.
func (s *server) Play(stream grpc.BidiStreamingServer[pb.ToTarget, pb.ToPlayer]) error {
	session, err := s.open(stream)
	if err == nil {
		s.count(session, 1)
		defer s.count(session, -1)
	}
	for err == nil {
		var message *pb.ToTarget
		if message, err = stream.Recv(); err != nil {
			break
		}
		var at Position
		switch {
		case message.GetBatch() != nil:
			at, err = s.store.Apply(session, message.GetBatch())
		case message.GetProbe() != nil:
			at, _ = s.store.Durable()
			if at.Session != session {
				err = refuse(at, pb.Reason_STALE_SESSION, "session %v was fenced by %v", session, at.Session)
			}
		default:
			err = refuse(at, pb.Reason_BAD_BATCH, "after Open come batches and probes")
		}
		if err == nil {
			ack := &pb.Ack{Index: at.Index, Digest: at.Digest.Bytes()}
			err = stream.Send(&pb.ToPlayer{Message: &pb.ToPlayer_Ack{Ack: ack}})
		}
	}
	var refusal Refusal
	if errors.As(err, &refusal) {
		err = stream.Send(&pb.ToPlayer{Message: &pb.ToPlayer_Refused{Refused: refusal.Refused}})
		leaveTheEndToThePlayer(stream)
		return err
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	if status.Code(err) == codes.FailedPrecondition { // Agree. A client may lose a status, but not a message.
		failed := &pb.Failed{Code: pb.Failed_VERSION, Detail: status.Convert(err).Message()}
		if stream.Send(&pb.ToPlayer{Message: &pb.ToPlayer_Failed{Failed: failed}}) == nil {
			leaveTheEndToThePlayer(stream)
		}
	}
	return err
}

// leaveTheEndToThePlayer waits until the player ends the stream, or for two seconds: a client whose write fails because
// the stream has ended may discard the last message unread.
func leaveTheEndToThePlayer(stream grpc.BidiStreamingServer[pb.ToTarget, pb.ToPlayer]) {
	select {
	case <-stream.Context().Done():
	case <-time.After(2 * time.Second):
	}
}

func (s *server) open(stream grpc.BidiStreamingServer[pb.ToTarget, pb.ToPlayer]) (session Session, err error) {
	message, err := stream.Recv()
	if err != nil {
		return session, err
	}
	opening := message.GetOpen()
	if opening == nil {
		return session, refuse(Position{}, pb.Reason_BAD_BATCH, "the first message of a stream is Open")
	}
	version, err := Agree(opening.Versions, "player")
	if err != nil {
		return session, err
	}
	if opening.Target != s.name {
		return session, refuse(Position{}, pb.Reason_WRONG_TARGET, "here is %q, not %q", s.name, opening.Target)
	}
	session = Session{opening.Epoch, opening.Term}
	at, err := s.store.Open(session, opening.LogId)
	if err != nil {
		return session, err
	}
	opened := &pb.Opened{Index: at.Index, Digest: at.Digest.Bytes(), Chain: at.Chain, Version: version}
	return session, stream.Send(&pb.ToPlayer{Message: &pb.ToPlayer_Opened{Opened: opened}})
}

func (s *server) Position(_ context.Context, request *pb.PositionRequest) (*pb.PositionReply, error) {
	version, err := Agree(request.Versions, "reader")
	if err != nil {
		return nil, err
	}
	at, _ := s.store.Durable()
	return s.reply(request.Target, at, version)
}

func (s *server) WaitFor(ctx context.Context, request *pb.WaitForRequest) (*pb.PositionReply, error) {
	version, err := Agree(request.Versions, "reader")
	if err != nil {
		return nil, err
	}
	for {
		at, moved := s.store.Durable()
		if at.Index >= request.Index {
			return s.reply(request.Target, at, version)
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

func (s *server) reply(target string, at Position, version uint32) (*pb.PositionReply, error) {
	if target != "" && target != s.name {
		return nil, status.Errorf(codes.NotFound, "no target %q is here", target)
	}
	return &pb.PositionReply{
		Target: s.name, LogId: at.LogID, Index: at.Index, Digest: at.Digest.Bytes(),
		Epoch: at.Session.Epoch, Term: at.Session.Term, Connected: s.feeds(at.Session),
		Chain: at.Chain, Version: version,
	}, nil
}

func (s *server) count(session Session, change int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.streams[session] += change
	if s.streams[session] == 0 {
		delete(s.streams, session)
	}
}

// feeds reports whether the stream of a session is open. A second player sees by it that another one is running.
func (s *server) feeds(session Session) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.streams[session] > 0
}

func main() {
	listen := flag.String("listen", "127.0.0.1:7001", "where to listen")
	path := flag.String("path", "target.bolt", "the file that holds the data")
	name := flag.String("id", "shard-1", "the target's name")
	dump := flag.Bool("dump", false, "print the data and end; the target must not be running")
	flag.Parse()
	store, err := OpenStore(*path)
	if err != nil {
		log.Fatalf("%s cannot be opened: %v", *path, err)
	}
	if *dump {
		if err := store.Dump(); err != nil {
			log.Fatal(err)
		}
		return
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(messageBytesMax), grpc.MaxSendMsgSize(messageBytesMax)}
	service := grpc.NewServer(options...)
	pb.RegisterTargetServer(service, &server{name: *name, store: store, streams: map[Session]int{}})
	at, _ := store.Durable()
	fmt.Printf("target %s listens at grpc://%s, index %d\n", *name, listener.Addr(), at.Index)
	log.Fatal(service.Serve(listener))
}
