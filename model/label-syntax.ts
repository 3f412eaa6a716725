/** Syntax of Kubernetes labels, and of other words that follow it. Pure. */
import { isDnsSubdomain } from './ids.ts'

const NAME = /^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/

/**
 * True for a qualified name: up to 63 characters, perhaps with a DNS subdomain and '/' before. Keys of labels and
 * annotations, appProtocol and trafficDistribution have this form.
 */
export function isQualifiedName(text: string): boolean {
  const slash = text.indexOf('/')
  return (slash < 0 || isDnsSubdomain(text.slice(0, slash))) && NAME.test(text.slice(slash + 1))
}

/** True for a label's value: empty, or up to 63 characters. */
export function isLabelValue(text: string): boolean {
  return text === '' || NAME.test(text)
}
