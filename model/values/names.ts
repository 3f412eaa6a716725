/** The grammar of names in Kubernetes and DNS, and the words of both. */

const LABEL = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/

/** True for an RFC 1123 label: 1 to 63 of a-z, 0-9 and '-', not starting or ending with '-'. */
export function isDnsLabel(value: string): boolean {
  return LABEL.test(value)
}

/** The protocols of a port of a Service. */
export const PROTOCOLS = ['TCP', 'UDP', 'SCTP'] as const
export type Protocol = (typeof PROTOCOLS)[number]

/** True for an RFC 1123 subdomain of at most 253 characters (the form of most Kubernetes object names). */
export function isDnsSubdomain(value: string): boolean {
  return value.length <= 253 && value.split('.').every((label) => isDnsLabel(label))
}
