// Package virtual is a world of torture in one process: an embedded broker on a virtual network, engines as members, and virtual time,
// so that a round of a minute takes a second, and ten thousand of them an evening.
//
// A process is only imagined. Killing one cuts its network for good, seals its journal, and gives the next life what its disk had at
// that instant; its engine is ended in the background, and nothing that it still does counts. A stopped process is one whose network
// stands still and whose handlers wait at a gate.
//
//	make test-seeds                                            10,000 rounds
//	go test -tags synctests ./torture/virtual                  GAPLESS_SEEDS of them
//	GAPLESS_SEED=17 go test -tags synctests ./torture/virtual  this one, with its schedule and all that happened
//
// A seed repeats the schedule, and, as time is virtual, nearly always what becomes of it: goroutines that wake at the same instant may
// take turns in another order.
package virtual
