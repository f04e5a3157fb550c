package accesslog

import "strings"

// auto is JSON where a line looks like it, else the common or combined format.
type auto struct {
	json, common Format // common: nil where that lacks a field
	lack         error
}

// NewAuto returns a format that goes by the beginning of each line: with a { it is JSON,
// as in NewJSON, else in the common or the combined format. Where those lack a field that
// is asked for, only JSON is taken.
func NewAuto(config JSONConfig) (Format, error) {
	json, err := NewJSON(config)
	if err != nil {
		return nil, err
	}
	common, lack := NewCommon(config.Fields...)
	return &auto{json, common, lack}, nil
}

func (f *auto) Parse(line string) (Record, error) {
	switch {
	case strings.HasPrefix(strings.TrimLeft(line, " \t"), "{"):
		return f.json.Parse(line)
	case f.lack != nil:
		return Record{}, malformed("it is no JSON object, and " + strings.TrimPrefix(f.lack.Error(), "accesslog: "))
	}
	return f.common.Parse(line)
}

func (f *auto) String() string {
	if f.lack != nil {
		return f.json.String()
	}
	return f.common.String() + ", or " + f.json.String()
}
