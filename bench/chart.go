package bench

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The pictures: the legend stands to the right of the curves, where it covers none of them.
const (
	chartWidth  = 9.5 * vg.Inch
	chartHeight = 3.7 * vg.Inch
	legendWidth = 2.5 * vg.Inch
	margin      = 0.12 * vg.Inch
)

var (
	black = color.RGBA{0x20, 0x20, 0x20, 0xff}
	grey  = color.RGBA{0x80, 0x80, 0x80, 0xff}
	faint = color.RGBA{0xe4, 0xe4, 0xe4, 0xff}
	inks  = []color.RGBA{
		{0x1f, 0x77, 0xb4, 0xff}, {0xd9, 0x6a, 0x00, 0xff}, {0x2c, 0x8c, 0x2c, 0xff}, {0xb0, 0x30, 0x60, 0xff},
		{0x80, 0x50, 0xc0, 0xff}, {0x8c, 0x56, 0x4b, 0xff}, {0x17, 0xa0, 0xb0, 0xff}, {0x60, 0x60, 0x20, 0xff},
	}
)

// ink is an arm's colour, the same in all pictures.
func (a Arm) ink() color.RGBA {
	return inks[max(slices.Index([]Arm{ArmEngine, ArmErrgroup, ArmGoroutines, ArmBare, ArmPipeline, ArmDecode}, a), 0)]
}

// chart is one picture.
type chart struct {
	Title      string
	Note       string // what to see in it
	x, y       string
	logX, logY bool
	xs         []tick // where the x axis has marks; nil = as usual
	curves     []drawn
	marks      []mark // vertical lines
}

type tick struct {
	at    float64
	label string
}

type drawn struct {
	name   string
	ink    color.RGBA
	points plotter.XYs
	spread []Spread // of each point; nil = none
	dashed bool
}

type mark struct {
	at   float64
	text string
}

// plot makes the picture's axes and curves, and the legend that belongs beside them.
func (c *chart) plot() (*plot.Plot, plot.Legend, error) {
	p := plot.New()
	p.Title.Text = c.Title
	p.Title.TextStyle.Font.Size, p.Title.Padding = 12, 6
	p.X.Label.Text, p.Y.Label.Text = c.x, c.y
	p.X.Label.TextStyle.Font.Size, p.Y.Label.TextStyle.Font.Size = 10, 10
	legend := plot.NewLegend()
	legend.Top, legend.Left, legend.Padding = true, true, 4
	legend.TextStyle.Font.Size = 10
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faint, faint
	p.Add(grid)
	for _, d := range c.curves {
		if d = d.drawable(c.logY); len(d.points) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(d.points)
		if err != nil {
			return nil, legend, err
		}
		line.Color, line.Width = d.ink, 1.6
		dots.Color, dots.Shape, dots.Radius = d.ink, draw.CircleGlyph{}, 2.4
		if d.dashed {
			line.Dashes, line.Width = []vg.Length{4, 3}, 1
			dots.Radius = 0
		}
		if len(d.points) > 40 {
			dots.Radius = 0
		}
		p.Add(line, dots)
		if d.spread != nil {
			p.Add(&bars{d})
		}
		legend.Add(d.name, line)
	}
	c.axes(p)
	for i, m := range c.marks {
		p.Add(&vertical{m, i})
	}
	return p, legend, nil
}

// drawable leaves out the points that the picture has no place for, and says so in the legend: on a logarithmic axis 0, as the rate of a
// run that was too short, and figures that are no numbers.
func (d drawn) drawable(log bool) drawn {
	shown := drawn{name: d.name, ink: d.ink, dashed: d.dashed}
	for i, xy := range d.points {
		if math.IsNaN(xy.Y) || math.IsInf(xy.Y, 0) || log && xy.Y <= 0 {
			shown.name = d.name + ", without some that are 0"
			continue
		}
		shown.points = append(shown.points, xy)
		if d.spread != nil {
			shown.spread = append(shown.spread, d.spread[i])
		}
	}
	return shown
}

func (c *chart) axes(p *plot.Plot) {
	if math.IsInf(p.X.Min, 0) || math.IsInf(p.Y.Min, 0) { // nothing is drawn
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 1, 10, 1, 10
	}
	if c.logX {
		p.X.Scale = plot.LogScale{}
		p.X.Min, p.X.Max = p.X.Min/1.15, p.X.Max*1.15
	}
	if c.xs != nil {
		p.X.Tick.Marker = marked(c.xs)
	}
	if c.logY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, decades{}
		p.Y.Min, p.Y.Max = math.Max(p.Y.Min/1.3, 1e-6), p.Y.Max*1.5
	} else {
		p.Y.Min, p.Y.Max = 0, p.Y.Max*1.12
		p.Y.Tick.Marker = plain{}
	}
	if p.Y.Max <= p.Y.Min {
		p.Y.Max = p.Y.Min + 1
	}
	if p.X.Max <= p.X.Min {
		p.X.Max = p.X.Min + 1
	}
}

// draw puts the picture on a canvas.
func (c *chart) draw(on vg.CanvasSizer) error {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p, legend, err := c.plot()
	if err != nil {
		return err
	}
	dc := draw.New(on)
	dc.SetColor(color.White)
	dc.Fill(dc.Path())
	dc = draw.Crop(dc, margin, -margin, margin, -margin)
	p.Draw(draw.Crop(dc, 0, -legendWidth, 0, 0))
	legend.Draw(draw.Crop(dc, chartWidth-2*margin-legendWidth+0.15*vg.Inch, 0, 0, -0.3*vg.Inch))
	return nil
}

// svg is the picture for a page: no font but what every browser has.
func (c *chart) svg() (string, error) {
	canvas := vgsvg.NewWith(vgsvg.UseWH(chartWidth, chartHeight))
	if err := c.draw(canvas); err != nil {
		return "", err
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	_, svg, _ := strings.Cut(b.String(), "<svg")
	return strings.ReplaceAll("<svg"+svg, "font-family:Liberation Sans", "font-family:Liberation Sans,Arial,Helvetica,sans-serif"), nil
}

// png writes the picture as an image.
func (c *chart) png(w io.Writer) error {
	canvas := vgimg.NewWith(vgimg.UseWH(chartWidth, chartHeight), vgimg.UseDPI(110))
	if err := c.draw(canvas); err != nil {
		return err
	}
	_, err := vgimg.PngCanvas{Canvas: canvas}.WriteTo(w)
	return err
}

// bars are the least and the most beside the medians.
type bars struct{ d drawn }

// Plot implements plot.Plotter.
func (b *bars) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	style := draw.LineStyle{Color: b.d.ink, Width: 0.9}
	for i, xy := range b.d.points {
		s := b.d.spread[i]
		if s.Rounds < 2 || s.Least <= 0 {
			continue
		}
		c.StrokeLine2(style, tx(xy.X), ty(s.Least), tx(xy.X), ty(s.Most))
	}
}

// DataRange implements plot.DataRanger.
func (b *bars) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, xmax, ymin, ymax = math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for i, xy := range b.d.points {
		xmin, xmax = min(xmin, xy.X), max(xmax, xy.X)
		low := b.d.spread[i].Least
		if low <= 0 {
			low = xy.Y
		}
		ymin, ymax = min(ymin, low), max(ymax, b.d.spread[i].Most)
	}
	return xmin, xmax, ymin, ymax
}

// vertical is a line through the whole height, with a text at its foot.
type vertical struct {
	mark
	row int
}

// Plot implements plot.Plotter.
func (v *vertical) Plot(c draw.Canvas, p *plot.Plot) {
	tx, _ := p.Transforms(&c)
	x := tx(v.at)
	c.StrokeLine2(draw.LineStyle{Color: black, Width: 0.9, Dashes: []vg.Length{2, 3}}, x, c.Min.Y, x, c.Max.Y)
	style := draw.TextStyle{Color: black, Font: font.From(plot.DefaultFont, 10), Handler: plot.DefaultTextHandler, YAlign: draw.YBottom}
	at := vg.Point{X: x + 4, Y: c.Min.Y + 5 + vg.Length(v.row)*13}
	if x+4+style.Width(v.text) > c.Max.X {
		at.X, style.XAlign = x-4, draw.XRight
	}
	c.FillText(style, at, v.text)
}

type marked []tick

// Ticks implements plot.Ticker.
func (m marked) Ticks(least, most float64) (ticks []plot.Tick) {
	for _, t := range m {
		ticks = append(ticks, plot.Tick{Value: t.at, Label: t.label})
	}
	return ticks
}

type plain struct{}

// Ticks implements plot.Ticker: the usual ones, in short numbers.
func (plain) Ticks(least, most float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(least, most)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = short3(ticks[i].Value)
		}
	}
	return ticks
}

type decades struct{}

// Ticks implements plot.Ticker: labels at 1, 2 and 5 times a power of ten, or at the powers alone where there are many.
func (decades) Ticks(least, most float64) (ticks []plot.Tick) {
	few := math.Log10(most/least) < 2.2
	for e := math.Floor(math.Log10(least)); e <= math.Ceil(math.Log10(most)); e++ {
		for _, m := range []float64{1, 2, 5} {
			t := plot.Tick{Value: m * math.Pow(10, e)}
			if t.Value < least || t.Value > most {
				continue
			}
			if few || m == 1 {
				t.Label = short3(t.Value)
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}

// short3 is a number as an axis has room for.
func short3(x float64) string {
	for _, u := range []struct {
		of   float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(x) >= u.of*0.9999 {
			return fmt.Sprintf("%.4g%s", x/u.of, u.name)
		}
	}
	return fmt.Sprintf("%.3g", x)
}
