package kafkatest

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are chosen below the range that systems draw outgoing ports from. A port inside it can be
// taken by any client while a killed broker is down, even by one that dials that very port and so
// ends up connected to itself.
const (
	lowestPort  = 15000
	highestPort = 32000
)

// freePorts returns ports of 127.0.0.1 that nothing listens on. Another process may still come
// first, which the broker then finds out.
func freePorts(n int) ([]int, error) {
	var ports []int
	// Ports stay taken until all are found, so that none is found twice.
	for range 1000 {
		if len(ports) == n {
			return ports, nil
		}
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		l, err := net.Listen("tcp", address(port))
		if err != nil {
			continue
		}
		defer func() { _ = l.Close() }()
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("kafkatest: no %d free ports between %d and %d", n, lowestPort, highestPort)
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
