/**
 * Derived Services: Services with EndpointSlices that the agent writes for an import on demand, for consumers that know
 * nothing of imports. Who asks for one, its name, and how it is recognised. Pure.
 */
import {
  APP_MANAGED_BY_SEALANE,
  type KubeObject,
  LABEL_APP_MANAGED_BY,
  type Namespace,
  type Service,
  type ServiceImport,
} from '../model.ts'
import { isDnsLabel } from '../values/values.ts'

/**
 * On a ServiceImport: the name of its derived Service, or '' for none. On a Namespace: the pattern of the names of all
 * imports in it, with one `*` for the name of the import.
 */
export const ANNOTATION_DERIVED_SERVICE = 'sealane.io/derived-service'
/** On derived Services and their slices: "true". An admission policy selects them by it. */
export const LABEL_DERIVED = 'sealane.io/derived'
/** On derived Services and their slices: the name of the ServiceImport. */
export const LABEL_DERIVED_FROM = 'sealane.io/derived-from'
/**
 * The end of names that need no consent of the Namespace. Without a fixed end or a pattern that the agent cannot write,
 * a stolen token of the agent could add endpoints to every Service of the cluster.
 */
export const DERIVED_SUFFIX = '-clusterset'

/**
 * A derived Service of the import's own name would take the place of the Service that the Namespace exports, or that a
 * user applies there next.
 */
const BARE = '*'

/** What the annotations ask for. */
export type DerivedName =
  | { readonly t: 'none' }
  | { readonly t: 'name'; readonly name: string }
  | { readonly t: 'wrong'; readonly message: string }

/** The derived Service that the annotations of an import and its Namespace ask for. That of the import counts first. */
export function derivedName(
  { metadata }: Pick<ServiceImport, 'metadata'>,
  namespace: Pick<Namespace, 'metadata'>,
): DerivedName {
  const own = metadata.annotations?.[ANNOTATION_DERIVED_SERVICE]
  const pattern = namespace.metadata.annotations?.[ANNOTATION_DERIVED_SERVICE]
  if (own === '') return { t: 'none' }
  if (own !== undefined) {
    const fits = own.endsWith(DERIVED_SUFFIX) || (pattern !== undefined && fitsPattern(own, pattern))
    if (isServiceName(own) && fits && own !== metadata.name) return { t: 'name', name: own }
    const expected = `a name of a Service that ends with ${DERIVED_SUFFIX}, or fits the pattern on the Namespace`
    return wrong(own, '', `${expected}, and is not the name of the import`)
  }
  if (pattern === undefined || pattern === '') return { t: 'none' }
  const at = ` of Namespace ${namespace.metadata.name}`
  if (pattern.split('*').length !== 2 || pattern === BARE)
    return wrong(pattern, at, 'one * for the name of the import, and more around it, such as *-clusterset')
  // A replacement by a function: the name takes the place as it is.
  const name = pattern.replace('*', () => metadata.name)
  if (isServiceName(name)) return { t: 'name', name }
  const limit = 'a name of a Service: 1 to 63 of a-z, 0-9 and -, a letter first'
  return wrong(pattern, at, `${limit}, which ${JSON.stringify(name)} is not`)
}

function wrong(value: string, at: string, expected: string): DerivedName {
  const shown = JSON.stringify(value.slice(0, 100))
  return { t: 'wrong', message: `annotation ${ANNOTATION_DERIVED_SERVICE}${at} ${shown}: expected ${expected}` }
}

function fitsPattern(name: string, pattern: string): boolean {
  const [start = '', end, ...more] = pattern.split('*')
  if (pattern === BARE || end === undefined || more.length > 0) return false
  return name.startsWith(start) && name.endsWith(end) && name.length > start.length + end.length
}

/** RFC 1035 section 2.3.1: API servers before Kubernetes 1.34 accept no digit at the start of a Service's name. */
function isServiceName(text: string): boolean {
  return isDnsLabel(text) && /^[a-z]/.test(text)
}

/** Whether the agent wrote the object as a derived Service, or as one of its slices. */
export function isDerived({ metadata: { labels = {} } }: Pick<KubeObject, 'metadata'>): boolean {
  return labels[LABEL_DERIVED] === 'true' && labels[LABEL_APP_MANAGED_BY] === APP_MANAGED_BY_SEALANE
}

/**
 * Why a Service counts as a user's, who made it or took over a derived one: then it is neither written nor removed.
 * Undefined: it is the agent's. A change of ports is none: the agent undoes it.
 */
export function usersReason(service: Service): string | undefined {
  if (!isDerived(service)) return 'Sealane did not create it'
  const { metadata, spec: { type = 'ClusterIP', selector = {}, externalIPs = [] } = {} } = service
  if (Object.keys(selector).length > 0) return 'a user gave it a selector'
  if (externalIPs.length > 0) return 'a user gave it externalIPs'
  if (type !== 'ClusterIP') return `a user gave it type ${type}`
  const from = metadata.labels?.[LABEL_DERIVED_FROM] ?? ''
  const isOwned = metadata.ownerReferences?.some(({ kind, name }) => kind === 'ServiceImport' && name === from)
  return isOwned === true ? undefined : `ServiceImport ${JSON.stringify(from)} does not own it`
}
