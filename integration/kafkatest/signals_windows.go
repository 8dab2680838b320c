package kafkatest

import (
	"errors"
	"os"
)

// errNoSignals also makes the class data archive impossible here: only a broker that is asked to
// stop writes one.
var errNoSignals = errors.New("kafkatest: Windows can kill a process, but not ask it to stop or pause it")

func terminate(*os.Process) error { return errNoSignals }
func suspend(*os.Process) error   { return errNoSignals }
func resume(*os.Process) error    { return errNoSignals }
