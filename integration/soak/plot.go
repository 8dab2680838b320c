package main

import (
	"errors"
	"fmt"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The picture: one panel under another with time as their common axis, their legends to the right, and the churn as marks through
// all of them.
const (
	pictureWidth  = 13 * vg.Inch
	panelHeight   = 2.1 * vg.Inch
	headHeight    = 0.95 * vg.Inch
	legendWidth   = 3.1 * vg.Inch
	pictureMargin = 0.15 * vg.Inch
)

var (
	blue   = color.RGBA{0x1f, 0x77, 0xb4, 0xff}
	orange = color.RGBA{0xd9, 0x6a, 0x00, 0xff}
	green  = color.RGBA{0x2c, 0x8c, 0x2c, 0xff}
	grey   = color.RGBA{0x80, 0x80, 0x80, 0xff}
	shade  = color.RGBA{0xee, 0xee, 0xee, 0xff}
	marks  = map[kind]color.RGBA{
		kindPartitions: {0x80, 0x50, 0xc0, 0xff}, kindBroker: {0xd0, 0x20, 0x20, 0xff}, kindLeave: {0x40, 0xa0, 0x40, 0xff},
		kindKill: {0xe0, 0x90, 0x00, 0xff}, kindWorkers: {0x30, 0x80, 0xd0, 0xff},
	}
)

// panel is one of the plots.
type panel struct {
	title  string
	log    bool
	curves []curve
}

type curve struct {
	name   string // of its trend, where it has one
	legend string // else
	color  color.RGBA
	points plotter.XYs // minutes
}

// plot writes the picture as SVG.
func (r *result) plot(path string) (err error) {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	panels := r.panels()
	height := headHeight + vg.Length(len(panels))*panelHeight + pictureMargin
	canvas := vgsvg.NewWith(vgsvg.UseWH(pictureWidth, height))
	if err := r.draw(draw.New(canvas), panels); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = canvas.WriteTo(f)
	return err
}

func (r *result) panels() []panel {
	own := func(of func(*memberSample) float64) (xys plotter.XYs) {
		for _, x := range r.samples {
			if m := x.eldest(); m != nil && of(m) >= 0 {
				xys = append(xys, plotter.XY{X: x.At / 60, Y: of(m)})
			}
		}
		return xys
	}
	late := func(of func(*latency) float64) (xys plotter.XYs) {
		for i := range r.latencies {
			xys = append(xys, plotter.XY{X: r.latencies[i].At / 60, Y: max(of(&r.latencies[i]), 0.01)})
		}
		return xys
	}
	var lag plotter.XYs
	for _, x := range r.samples {
		if x.Lag >= 0 {
			lag = append(lag, plotter.XY{X: x.At / 60, Y: max(float64(x.Lag), 1)})
		}
	}
	all := []panel{
		{title: "Memory of member A, MiB", curves: []curve{
			{name: resident, color: orange, points: own(func(m *memberSample) float64 { return mebibytes(m.RSS) })},
			{name: runtimeMem, color: green, points: own(func(m *memberSample) float64 { return mebibytes(m.Runtime) })},
			{name: liveHeap, color: blue, points: own(func(m *memberSample) float64 { return mebibytes(m.Heap) })},
		}},
		{title: "Goroutines of member A", curves: []curve{
			{name: goroutines, color: blue, points: own(func(m *memberSample) float64 { return float64(m.Goroutines) })},
		}},
		{title: "Open files of member A", curves: []curve{
			{name: files, color: blue, points: own(func(m *memberSample) float64 { return float64(m.Files) })},
		}},
		{title: "Dedupe store of member A, MiB", curves: []curve{
			{name: store, color: blue, points: own(func(m *memberSample) float64 { return mebibytes(m.Store) })},
			{name: storeLog, color: green, points: own(func(m *memberSample) float64 { return mebibytes(m.Log) })},
		}},
		{title: "Latency of all records, from the intended time of sending, ms", log: true, curves: []curve{
			{name: p99, color: orange, points: late(func(l *latency) float64 { return l.P99 })},
			{name: p50, color: blue, points: late(func(l *latency) float64 { return l.P50 })},
			{name: ackP99, color: grey, points: late(func(l *latency) float64 { return l.AckP99 })},
		}},
		{title: "Latency from the broker's acknowledgement to the handler's end, ms", log: true, curves: []curve{
			{name: ownP99, color: orange, points: late(func(l *latency) float64 { return l.OwnP99 })},
			{name: ownP50, color: blue, points: late(func(l *latency) float64 { return l.OwnP50 })},
			{name: timer, color: grey, points: late(func(l *latency) float64 { return l.Timer })},
		}},
		{title: "Lag, records", log: true, curves: []curve{{legend: fmt.Sprintf("lag: %d in the end", r.Lag), color: blue, points: lag}}},
	}
	if !r.options.dedupe {
		all = append(all[:3], all[4:]...)
	}
	return all
}

func (r *result) draw(c draw.Canvas, panels []panel) error {
	trends := map[string]trend{}
	for _, t := range r.Series {
		trends[t.Name] = t
	}
	end := r.options.duration.Minutes()
	for _, x := range r.samples {
		end = max(end, x.At/60)
	}
	var rows [][]*plot.Plot
	var legends []plot.Legend
	for i, p := range panels {
		one, legend, err := r.panel(p, trends, end)
		if err != nil {
			return err
		}
		if i == len(panels)-1 {
			one.X.Label.Text = "minutes since the start of the load"
		}
		rows, legends = append(rows, []*plot.Plot{one}), append(legends, legend)
	}
	c.SetColor(color.White)
	c.Fill(c.Path())
	c = draw.Crop(c, pictureMargin, -pictureMargin, pictureMargin, 0)
	r.head(draw.Crop(c, 0, 0, c.Max.Y-c.Min.Y-headHeight, 0))
	body := draw.Crop(c, 0, 0, 0, -headHeight)
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadY: 0.1 * vg.Inch}
	plots := draw.Crop(body, 0, -legendWidth, 0, 0)
	for i, row := range plot.Align(rows, tiles, plots) {
		rows[i][0].Draw(row[0])
		legends[i].Draw(draw.Crop(tiles.At(body, 0, i), body.Max.X-body.Min.X-legendWidth+0.15*vg.Inch, 0, 0, -0.25*vg.Inch))
	}
	return nil
}

// panel makes one plot, and the legend that belongs beside it.
func (r *result) panel(p panel, trends map[string]trend, end float64) (*plot.Plot, plot.Legend, error) {
	one := plot.New()
	one.Title.Text = p.title
	one.Title.TextStyle.Font.Size = 11
	one.X.Min, one.X.Max = 0, end
	legend := plot.NewLegend()
	legend.Top, legend.Left = true, true
	legend.TextStyle.Font.Size = 9.5
	legend.Padding = 3
	one.Add(&bands{r})
	for _, c := range p.curves {
		if len(c.points) == 0 {
			continue
		}
		line, err := plotter.NewLine(c.points)
		if err != nil {
			return nil, legend, err
		}
		line.Color, line.Width = c.color, 1.1
		one.Add(line)
		t, has := trends[c.name]
		if !has {
			legend.Add(c.legend, line)
			continue
		}
		if t.Samples < 2 {
			legend.Add(fmt.Sprintf("%s: %s", c.name, t.Verdict), line)
			continue
		}
		legend.Add(fmt.Sprintf("%s: %+.1f %%/h, %s", c.name, t.Percent, t.Verdict), line)
		if p.log && min(t.from.value, t.to.value) < t.Median/10 {
			continue // a straight line that comes near 0 has no place on such an axis
		}
		slope, err := plotter.NewLine(plotter.XYs{{X: t.from.hours * 60, Y: t.from.value}, {X: t.to.hours * 60, Y: t.to.value}})
		if err != nil {
			return nil, legend, err
		}
		slope.Color, slope.Width, slope.Dashes = color.Black, 0.8, []vg.Length{4, 3}
		one.Add(slope)
		legend.Add(fmt.Sprintf("its slope, through %s %s", figure(t.Median), t.Unit), slope)
	}
	if p.log {
		one.Y.Scale, one.Y.Tick.Marker = plot.LogScale{}, decades{}
		one.Y.Min, one.Y.Max = decadesAround(one.Y.Min, one.Y.Max)
	} else {
		one.Y.Min, one.Y.Tick.Marker = 0, plain{}
		one.Y.Max *= 1.1
	}
	one.X.Min, one.X.Max = 0, end
	one.X.Padding = 0
	return one, legend, nil
}

// head says what the picture is of, and what the marks mean.
func (r *result) head(c draw.Canvas) {
	style := draw.TextStyle{Color: color.Black, Font: font.From(plot.DefaultFont, 13), Handler: plot.DefaultTextHandler, YAlign: draw.YTop}
	c.FillText(style, vg.Point{X: c.Min.X, Y: c.Max.Y - 4}, fmt.Sprintf("Soak of %v at %d records/s, %d members, seed %d: %s", r.options.duration, r.Rate, r.Members, r.Seed, r.state()))
	style.Font.Size = 9.5
	n := r.Counts
	c.FillText(style, vg.Point{X: c.Min.X, Y: c.Max.Y - 23}, fmt.Sprintf("%d records, %d handled, %d dead-lettered, %d lost, %d out of order. %s", n.Records, n.Handled, n.DeadLettered, n.Lost, n.Violations, r.Command))
	style.YAlign = draw.YCenter
	x, y := c.Min.X, c.Max.Y-48
	entry := func(text string, thumb func(from vg.Point)) {
		thumb(vg.Point{X: x, Y: y})
		c.FillText(style, vg.Point{X: x + 18, Y: y}, text)
		x += 18 + style.Width(text) + 16
	}
	for _, k := range kinds {
		entry(string(k), func(at vg.Point) {
			c.StrokeLine2(draw.LineStyle{Color: marks[k], Width: 2}, at.X+6, at.Y-6, at.X+6, at.Y+6)
		})
	}
	entry("left out of the slopes", func(at vg.Point) {
		c.FillPolygon(shade, []vg.Point{{X: at.X, Y: at.Y - 6}, {X: at.X + 13, Y: at.Y - 6}, {X: at.X + 13, Y: at.Y + 6}, {X: at.X, Y: at.Y + 6}})
	})
}

// bands are the marks of the churn behind the curves, and what is left out.
type bands struct{ *result }

// Plot implements plot.Plotter.
func (b *bands) Plot(c draw.Canvas, p *plot.Plot) {
	tr, _ := p.Transforms(&c)
	band := func(from, to float64, col color.Color) {
		l, r := tr(max(from/60, p.X.Min)), tr(min(to/60, p.X.Max))
		c.FillPolygon(col, []vg.Point{{X: l, Y: c.Min.Y}, {X: r, Y: c.Min.Y}, {X: r, Y: c.Max.Y}, {X: l, Y: c.Max.Y}})
	}
	band(0, warmUp(b.options.duration).Seconds(), shade)
	for _, e := range b.Events {
		if e.Kind == kindBroker {
			band(e.Begin, e.Settled+settling(b.options.every).Seconds(), shade)
		}
	}
	for _, e := range b.Events {
		x := tr(e.Begin / 60)
		c.StrokeLine2(draw.LineStyle{Color: marks[e.Kind], Width: 1}, x, c.Min.Y, x, c.Max.Y)
	}
}

// plain are the usual ticks, with no more figures than they need.
type plain struct{}

// Ticks implements plot.Ticker.
func (plain) Ticks(least, most float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(least, most)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = fmt.Sprintf("%.4g", ticks[i].Value)
		}
	}
	return ticks
}

// decades are the ticks of a logarithmic axis: every power of ten, in plain numbers.
type decades struct{}

// Ticks implements plot.Ticker.
func (decades) Ticks(least, most float64) (ticks []plot.Tick) {
	for v := 0.001; v <= most*1.001; v *= 10 {
		for _, m := range []float64{1, 2, 5} {
			t := plot.Tick{Value: v * m}
			if m == 1 {
				t.Label = fmt.Sprintf("%g", float64(int64(v*1000+0.5))/1000)
			}
			if t.Value >= least*0.999 && t.Value <= most*1.001 {
				ticks = append(ticks, t)
			}
		}
	}
	return ticks
}

func decadesAround(least, most float64) (from, to float64) {
	from, to = 0.001, 0.001
	for from*10 <= least {
		from *= 10
	}
	for to < most {
		to *= 10
	}
	return from, max(to, from*10)
}
