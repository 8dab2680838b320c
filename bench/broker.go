package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// endlessTopic is the topic of an embedded broker that serves one batch for ever.
const endlessTopic = "endless"

// brokerJob is what an embedded broker is to serve.
type brokerJob struct {
	Partitions int `json:"partitions"` // of a log without end; 0 = what is produced
	Bytes      int `json:"bytes"`      // of the batch that follows
}

type address struct {
	Addr string `json:"addr"`
}

// brokerRole is the embedded broker.
func brokerRole(ctx context.Context, in *bufio.Reader, out io.Writer) error {
	var job brokerJob
	if err := readJob(in, &job); err != nil {
		return err
	}
	opts := []kfake.Opt{kfake.NumBrokers(1)}
	if job.Partitions > 0 {
		batch := make([]byte, job.Bytes)
		if _, err := io.ReadFull(in, batch); err != nil {
			return err
		}
		opts = append(opts, kfake.SeedTopics(int32(job.Partitions), endlessTopic), kfake.SyntheticFetch(kfake.SyntheticBatch{Batch: batch}))
	}
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		return err
	}
	defer cluster.Close()
	if job.Partitions > 0 {
		cluster.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			return endlessEpochs(req.(*kmsg.OffsetForLeaderEpochRequest)), nil, true
		})
	}
	if err := json.NewEncoder(out).Encode(address{cluster.ListenAddrs()[0]}); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, in)
	return nil
}

// endlessEpochs says where the leader epochs of a log without end do end. By itself the broker tells of the log that it really has,
// which is empty, and who begins at a committed offset would take that for a truncation.
func endlessEpochs(req *kmsg.OffsetForLeaderEpochRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition, rp.LeaderEpoch, rp.EndOffset = p.Partition, p.LeaderEpoch, 1<<62
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// serverJob is what the server of handler http does.
type serverJob struct {
	After time.Duration `json:"after"` // it answers
}

// serverRole is that server.
func serverRole(ctx context.Context, in *bufio.Reader, out io.Writer) error {
	var job serverJob
	if err := readJob(in, &job); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if job.After > 0 {
			time.Sleep(job.After)
		}
		_, _ = io.WriteString(w, "ok")
	})}
	go func() { _ = s.Serve(l) }()
	if err := json.NewEncoder(out).Encode(address{fmt.Sprintf("http://%s/", l.Addr())}); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, in)
	return s.Close()
}

// startAddress starts a process that serves something, and says where.
func startAddress(role string, what any, more []byte) (*child, string, error) {
	c, err := start(role, what, more)
	if err != nil {
		return nil, "", err
	}
	var a address
	if err := c.read(&a); err != nil {
		return nil, "", err
	}
	return c, a.Addr, nil
}
