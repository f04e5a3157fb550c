// Package licenses keeps THIRD_PARTY_LICENSES, the licenses of all modules that the programs
// link. Its tests fail when the file differs from what is linked:
//
//	go test ./internal/licenses -update
//
// writes it anew.
package licenses
