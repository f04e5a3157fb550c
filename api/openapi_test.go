package api_test

import (
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"
)

// The description is OpenAPI 3.1, and its examples are as their schemas have them.
func TestTheDescription(t *testing.T) {
	require.NoError(t, described().doc.Validate(t.Context(), openapi3.EnableSchemaPatternValidation()))
}
