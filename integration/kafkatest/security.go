package kafkatest

import (
	"fmt"
	"strings"
)

const (
	plainLoginModule = "org.apache.kafka.common.security.plain.PlainLoginModule"
	scramLoginModule = "org.apache.kafka.common.security.scram.ScramLoginModule"
	oauthLoginModule = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
	// The validator believes any token that is well formed, unsigned and not expired.
	oauthValidator = "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
	authorizer     = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
)

var scramMechanisms = []string{"SCRAM-SHA-256", "SCRAM-SHA-512"}

func (f *propertiesFile) setSecurity(cfg config, certs *certificates) {
	if cfg.has(TLS) || cfg.has(MTLS) || cfg.has(SASLTLS) || cfg.has(ExpiredTLS) {
		f.setTLS(certs)
	}
	if cfg.has(MTLS) {
		f.set("listener.name.mtls.ssl.client.auth", "required")
		f.set("listener.name.mtls.ssl.principal.mapping.rules", "RULE:^CN=([^,]+).*$/$1/,DEFAULT")
	}
	if cfg.has(ExpiredTLS) {
		f.set("listener.name.expired_tls.ssl.keystore.location", certs.expiredServer)
	}
	for _, l := range []Listener{SASLPlaintext, SASLTLS} {
		if cfg.has(l) {
			f.setSASL(l, cfg.users)
		}
	}
	if cfg.acls {
		f.set("authorizer.class.name", authorizer)
		f.set("super.users", "User:ANONYMOUS;User:"+AdminUser)
		f.set("allow.everyone.if.no.acl.found", "false")
	}
}

func (f *propertiesFile) setTLS(certs *certificates) {
	f.set("ssl.keystore.type", "PEM")
	f.set("ssl.keystore.location", certs.server)
	f.set("ssl.truststore.type", "PEM")
	f.set("ssl.truststore.location", certs.ca)
	f.set("ssl.client.auth", "none")
}

func (f *propertiesFile) setSASL(l Listener, users []credential) {
	// Kafka wants listener and mechanism in lower case here, whatever their case elsewhere.
	set := func(mechanism, key, value string) {
		f.set(fmt.Sprintf("listener.name.%s.%s.%s", strings.ToLower(string(l)), strings.ToLower(mechanism), key), value)
	}
	f.set("sasl.enabled.mechanisms", "PLAIN,"+strings.Join(scramMechanisms, ",")+",OAUTHBEARER")

	var accounts strings.Builder
	for _, u := range users {
		fmt.Fprintf(&accounts, ` user_%s="%s"`, u.user, u.password)
	}
	set("PLAIN", "sasl.jaas.config", plainLoginModule+" required"+accounts.String()+";")
	for _, mechanism := range scramMechanisms {
		// SCRAM users are in the metadata log, put there when the storage is formatted.
		set(mechanism, "sasl.jaas.config", scramLoginModule+" required;")
	}
	set("OAUTHBEARER", "sasl.jaas.config", oauthLoginModule+" required;")
	set("OAUTHBEARER", "sasl.server.callback.handler.class", oauthValidator)
}
