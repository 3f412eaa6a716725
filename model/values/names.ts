/** The grammar of names in Kubernetes and DNS, and of keys: the tests, and the patterns for the CRDs. */

/** The most characters of a Kubernetes name, of which an RFC 1123 subdomain is one. */
export const MAX_NAME = 253
/** The most characters of an RFC 1123 label. */
export const MAX_LABEL = 63

/** An RFC 1123 label of any length. */
export const LABEL_PATTERN = '[a-z0-9]([-a-z0-9]*[a-z0-9])?'
const LABEL = new RegExp(`^${LABEL_PATTERN}$`)

/** True for an RFC 1123 label: 1 to 63 of a-z, 0-9 and '-', not starting or ending with '-'. */
export function isDnsLabel(value: string): boolean {
  return value.length <= MAX_LABEL && LABEL.test(value)
}

/** True for an RFC 1123 subdomain of at most 253 characters (the form of most Kubernetes object names). */
export function isDnsSubdomain(value: string): boolean {
  return value.length <= MAX_NAME && value.split('.').every((label) => isDnsLabel(label))
}

/** True if an API server accepts the value as a name: like a subdomain, but a part may be longer than DNS allows. */
export function isObjectName(value: string): boolean {
  return value.length <= MAX_NAME && value.split('.').every((part) => LABEL.test(part))
}

const QUALIFIED = /^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/

/**
 * True for a qualified name: up to 63 characters, optionally after a DNS subdomain and '/'. Label and annotation keys,
 * appProtocol and trafficDistribution have this form.
 */
export function isQualifiedName(text: string): boolean {
  const slash = text.indexOf('/')
  return (slash < 0 || isDnsSubdomain(text.slice(0, slash))) && QUALIFIED.test(text.slice(slash + 1))
}

/** True for a label's value: empty, or up to 63 characters. */
export function isLabelValue(text: string): boolean {
  return text === '' || QUALIFIED.test(text)
}

/** Curve25519, 32 bytes (WireGuard whitepaper section 5), in base64 as `wg` prints it. */
export const PUBLIC_KEY_PATTERN = '^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$'
const PUBLIC_KEY = new RegExp(PUBLIC_KEY_PATTERN)

export function isPublicKey(value: string): boolean {
  return PUBLIC_KEY.test(value)
}
