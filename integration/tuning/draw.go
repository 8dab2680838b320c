package main

import (
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	width, height = 10 * vg.Inch, 6.2 * vg.Inch
	headHeight    = 0.55 * vg.Inch
	margin        = 0.15 * vg.Inch
)

var (
	blue   = color.RGBA{0x1f, 0x77, 0xb4, 0xff}
	orange = color.RGBA{0xd9, 0x6a, 0x00, 0xff}
	red    = color.RGBA{0xc0, 0x20, 0x20, 0xff}
	grey   = color.RGBA{0x70, 0x70, 0x70, 0xff}
	shade  = color.RGBA{0xf0, 0xf0, 0xf0, 0xff}
)

// row is the workload's line of the table.
func (r *result) row() string {
	shares := slices.Sorted(slices.Values(r.shares))
	with := fmt.Sprint(r.least)
	if r.top != r.least {
		with = fmt.Sprintf("%d to %d", r.least, r.top)
	}
	return fmt.Sprintf("| %s: %s | %d | %.0f/s | %.3f, %.3f | %s |", r.Name, r.About, r.best, r.rate, shares[0], shares[len(shares)/2], with)
}

// draw writes the picture: the counts above, the throughput below, time as their common axis.
func (r *result) draw(path string) (err error) {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	counts, err := r.counts()
	if err != nil {
		return err
	}
	rates, err := r.rates()
	if err != nil {
		return err
	}
	canvas := vgsvg.NewWith(vgsvg.UseWH(width, height))
	c := draw.New(canvas)
	c.SetColor(color.White)
	c.Fill(c.Path())
	c = draw.Crop(c, margin, -margin, margin, -margin)
	style := draw.TextStyle{Color: color.Black, Font: font.From(plot.DefaultFont, 13), Handler: plot.DefaultTextHandler, YAlign: draw.YTop}
	c.FillText(style, vg.Point{X: c.Min.X, Y: c.Max.Y}, fmt.Sprintf("%s: %.3f of the best static count's throughput from %.0f s on", r.Name, r.shares[0], r.From))
	style.Font.Size = 10
	c.FillText(style, vg.Point{X: c.Min.X, Y: c.Max.Y - 18}, "Simulated: "+r.About)
	rows := [][]*plot.Plot{{counts}, {rates}}
	tiles := draw.Tiles{Rows: 2, Cols: 1, PadY: 0.15 * vg.Inch}
	for i, row := range plot.Align(rows, tiles, draw.Crop(c, 0, 0, 0, -headHeight)) {
		rows[i][0].Draw(row[0])
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = canvas.WriteTo(f)
	return err
}

// panel is an empty plot with the time before From shaded: the tuner has that long.
func (r *result) panel(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle.Font.Size = 11
	p.X.Min, p.X.Max = 0, r.Seconds
	p.X.Padding, p.Y.Padding = 0, 0
	p.Y.Min = 0
	p.X.Tick.Marker, p.Y.Tick.Marker = plain{}, plain{}
	p.Legend.TextStyle.Font.Size = 9.5
	p.Legend.Top = true
	p.Legend.Padding = 2
	p.Add(searching{r})
	return p
}

func (r *result) counts() (*plot.Plot, error) {
	p := r.panel("Workers")
	var limit, settled plotter.XYs
	var most float64
	for i, x := range r.auto {
		last := i == len(r.auto)-1
		limit = step(limit, x.At, x.Limit, last)
		settled = step(settled, x.At, x.Settled, last)
		most = max(most, float64(x.Limit))
	}
	best := plotter.XYs{{X: 0, Y: float64(r.best)}, {X: r.Seconds, Y: float64(r.best)}}
	p.Y.Max = 1.35 * max(most, float64(r.best))
	err := lines(p,
		curve{fmt.Sprintf("best static count from %.0f s on: %d", r.From, r.best), grey, []vg.Length{5, 3}, best},
		curve{"limit in force, with trials", orange, nil, limit},
		curve{"limit settled on", blue, nil, settled})
	if err == nil && r.Change > 0 {
		err = lines(p, curve{"the change", red, nil, plotter.XYs{{X: r.Change, Y: 0}, {X: r.Change, Y: p.Y.Max}}})
	}
	return p, err
}

// step goes on with a curve of steps: it has points at its corners only.
func step(xys plotter.XYs, at float64, n int, last bool) plotter.XYs {
	y := float64(n)
	switch k := len(xys); {
	case k > 0 && xys[k-1].Y == y && !last:
		return xys
	case k > 0:
		xys = append(xys, plotter.XY{X: at, Y: xys[k-1].Y})
	}
	return append(xys, plotter.XY{X: at, Y: y})
}

func (r *result) rates() (*plot.Plot, error) {
	p := r.panel("Records a second, over one second each")
	p.X.Label.Text = "seconds"
	var auto, static plotter.XYs
	var most float64
	for at := 1.0; at <= r.Seconds; at++ {
		a, s := r.auto.Rate(at-1, at), r.static.Rate(at-1, at)
		auto = append(auto, plotter.XY{X: at - 0.5, Y: a})
		static = append(static, plotter.XY{X: at - 0.5, Y: s})
		most = max(most, a, s)
	}
	p.Y.Max = 1.35 * most
	return p, lines(p, curve{fmt.Sprintf("%d workers all the time", r.best), grey, []vg.Length{5, 3}, static}, curve{"Auto", blue, nil, auto})
}

type curve struct {
	name   string
	color  color.Color
	dashes []vg.Length
	points plotter.XYs
}

func lines(p *plot.Plot, curves ...curve) error {
	for _, c := range curves {
		l, err := plotter.NewLine(c.points)
		if err != nil {
			return err
		}
		l.Color, l.Width, l.Dashes = c.color, 1.3, c.dashes
		p.Add(l)
		p.Legend.Add(c.name, l)
	}
	return nil
}

// searching shades the times that are not judged: after the start, and from the change on.
type searching struct{ *result }

// Plot implements plot.Plotter.
func (s searching) Plot(c draw.Canvas, p *plot.Plot) {
	tr, _ := p.Transforms(&c)
	left, right := tr(0), tr(s.From)
	c.FillPolygon(shade, []vg.Point{{X: left, Y: c.Min.Y}, {X: right, Y: c.Min.Y}, {X: right, Y: c.Max.Y}, {X: left, Y: c.Max.Y}})
	if s.Change > 0 {
		x := tr(s.Change)
		c.StrokeLine2(draw.LineStyle{Color: red, Width: 1}, x, c.Min.Y, x, c.Max.Y)
	}
}

// plain are four to nine ticks in plain numbers.
type plain struct{}

// Ticks implements plot.Ticker.
func (plain) Ticks(least, most float64) (ticks []plot.Tick) {
	unit := math.Pow(10, math.Floor(math.Log10(most-least)))
	for _, part := range []float64{1, 0.5, 0.2} {
		if unit*part*4 <= most-least {
			unit *= part
			break
		}
	}
	for v := math.Ceil(least/unit) * unit; v <= most; v += unit {
		ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%.6g", v)})
	}
	return ticks
}
