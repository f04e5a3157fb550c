package page_test

import (
	"log"
	"os"
	"path/filepath"

	"github.com/counterd/counterd/loadtest/page"
)

func Example() {
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	file, err := os.Create(filepath.Join(folder, "report.html"))
	if err != nil {
		log.Fatal(err)
	}
	report := page.Page{
		Title: "What these rules would have done",
		Sections: []page.Section{
			{Title: "Limits", Table: &page.Table{Head: []string{"limit", "denied"}, Rows: [][]string{{"ip-2-per-1s", "72"}}}},
			{Title: "Over time", Plot: &page.Plot{
				X:     page.Axis{Label: "time (UTC)", Unit: page.Moment},
				Y:     page.Axis{Label: "hits in 30m"},
				Lines: []page.Line{{Name: "admitted", X: []float64{1431849600, 1431851400, 1431853200}, Y: []float64{15, 16, 20}}},
			}},
		},
	}
	if err := report.Write(file); err != nil {
		log.Fatal(err)
	}
	if err := file.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
}
