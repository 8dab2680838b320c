// Package schedule plans a round of torture from a seed, and drives it. A Round is settings and Steps, drawn from its seed alone; a
// World does what the steps say, to real processes and brokers or to engines under virtual time; Run drives one with the other, notes
// what was done and when, lets everything come to rest, and has package proof judge.
package schedule
