package page_test

import (
	"log"
	"os"

	"github.com/counterd/counterd/loadtest/page"
)

func Example() {
	report := page.Page{
		Title: "loadtest run",
		Sections: []page.Section{
			{Title: "Statuses", Table: &page.Table{Head: []string{"status", "answers"}, Rows: [][]string{{"200", "9,990"}}}},
			{Title: "Latency", Plot: &page.Plot{
				X:     page.Axis{Label: "since the start", Unit: page.Seconds},
				Y:     page.Axis{Label: "latency", Unit: page.Milliseconds, Log: true},
				Lines: []page.Line{{Name: "p99", X: []float64{0, 1, 2}, Y: []float64{1.5, 1.6, 20}}},
			}},
		},
	}
	file, err := os.Create("report.html")
	if err != nil {
		log.Fatal(err)
	}
	if err := report.Write(file); err != nil {
		log.Fatal(err)
	}
	if err := file.Close(); err != nil {
		log.Fatal(err)
	}
}
