package bench

import (
	_ "embed"
	"html/template"
	"io"
	"strings"
	"time"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// WriteHTML writes one page that needs nothing else, no network either: pictures, recommendations and the table.
func (r *Report) WriteHTML(w io.Writer) error {
	type picture struct {
		Title, Note string
		SVG         template.HTML
	}
	var table strings.Builder
	if err := r.WriteTable(&table); err != nil {
		return err
	}
	data := struct {
		*Report
		When            string
		Pictures        []picture
		Recommendations []Recommendation
		Table           string
	}{Report: r, When: r.Began.Format(time.RFC1123), Table: table.String()}
	if len(varied(r.Cases)) > 0 {
		data.Recommendations = r.Recommend(0)
	}
	for _, c := range r.chartsOf() {
		svg, err := c.svg()
		if err != nil {
			return err
		}
		data.Pictures = append(data.Pictures, picture{c.Title, c.Note, template.HTML(svg)}) // ours: its texts have been escaped by the canvas
	}
	return page.Execute(w, data)
}
