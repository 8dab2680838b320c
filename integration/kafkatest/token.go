package kafkatest

import (
	"encoding/base64"
	"encoding/json"
	"time"
)

// UnsignedToken returns a JWT, without a signature, that says its bearer is the user until the
// given time from now. OAUTHBEARER on the SASL listeners believes it.
func UnsignedToken(user string, valid time.Duration) string {
	now := time.Now()
	header := map[string]any{"alg": "none"}
	claims := map[string]any{
		"sub": user,
		"iat": now.Unix(),
		"exp": now.Add(valid).Unix(),
	}
	// A token has three parts; the last, the signature, is empty here.
	return tokenPart(header) + "." + tokenPart(claims) + "."
}

func tokenPart(content map[string]any) string {
	text, err := json.Marshal(content)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return base64.RawURLEncoding.EncodeToString(text)
}
