// Package page writes one HTML file with text, tables and plots.
//
// The file is all there is: no script, no font, no image, no request to anywhere, and a
// policy in it that forbids them. It is readable in light and dark, on a phone and on
// paper, and by a screen reader. Every string is taken for text, wherever it came from.
//
// What is not a finite number is a gap in its line; so is, on a logarithmic axis, what is
// not positive. A line of more than [MaxPoints] points is thinned: of each stretch its
// first, its lowest, its highest and its last point are drawn, so that no peak gets lost.
package page
