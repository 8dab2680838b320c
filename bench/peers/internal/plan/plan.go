// Package plan is what is run, in which order, and what came of it.
package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gaplesshq/gapless/bench/peers/internal/catalogue"
	"github.com/gaplesshq/gapless/bench/peers/internal/report"
)

// A Cell is an arm in a workload: a row of the table.
type Cell struct {
	Arm      catalogue.Arm
	Workload catalogue.Workload
	Missing  string // why it can't be run
	Runs     []report.Run
}

// Name names a cell.
func (c *Cell) Name() string { return c.Workload.Name + " " + c.Arm.Name() }

// Records is how many it reads.
func (c *Cell) Records() int { return c.Workload.RecordsOf(&c.Arm) }

// A Plan is every cell, by workload.
type Plan struct {
	workloads []catalogue.Workload
	cells     [][]*Cell // by workload
}

// New plans for the chosen libraries and workloads, all if none is named. Its errors are about those names.
func New(sizes catalogue.Sizes, libraries, names []string) (*Plan, error) {
	arms, err := catalogue.Choose(libraries)
	if err != nil {
		return nil, fmt.Errorf("--libraries: %w", err)
	}
	workloads, err := catalogue.ChooseWorkloads(sizes, names)
	if err != nil {
		return nil, fmt.Errorf("--workloads: %w", err)
	}
	p := new(Plan)
	for _, w := range workloads {
		var cells []*Cell
		for _, a := range arms {
			if a.Part[w.Name] > 0 {
				cells = append(cells, &Cell{Arm: a, Workload: w})
			}
		}
		if len(cells) > 0 {
			p.workloads, p.cells = append(p.workloads, w), append(p.cells, cells)
		}
	}
	if len(p.cells) == 0 {
		return nil, errors.New("none of these libraries runs any of these workloads")
	}
	return p, nil
}

// All are all cells, in the order of the table.
func (p *Plan) All() []*Cell { return slices.Concat(p.cells...) }

// Round are the cells of a round that can be run, in its order: forwards, and then backwards, so that what drifts meets all alike.
func (p *Plan) Round(n int) (all []*Cell) {
	for _, cells := range p.cells {
		for i := range cells {
			if n%2 == 1 {
				i = len(cells) - 1 - i
			}
			if cells[i].Missing == "" {
				all = append(all, cells[i])
			}
		}
	}
	return all
}

// Sections are the rows so far.
func (p *Plan) Sections() (all []report.Section) {
	for i, cells := range p.cells {
		s := report.Section{Title: p.workloads[i].Title()}
		for _, c := range cells {
			row := report.Row{
				Library: c.Arm.Library, Arm: c.Workload.Name + "/" + c.Arm.Mode, Workload: c.Workload.Name, Mode: c.Arm.Mode,
				Order: c.Arm.Order(), Records: int64(c.Records()), InFlight: c.Workload.InFlight, Why: c.Missing,
			}
			if row.Why == "" && len(c.Runs) == 0 {
				row.Why = "interrupted before its first run"
			}
			row.Add(c.Runs)
			s.Rows = append(s.Rows, row)
		}
		all = append(all, s)
	}
	return all
}
