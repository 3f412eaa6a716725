/**
 * Checks whether this user may install at all, before anything is changed. So a user with read-only access leaves
 * nothing half done.
 */
import { UserError } from '../../runtime/runtime.ts'
import type { BrokerForm, ManifestObject } from '../../install/values/values.ts'
import { SCC } from '../../install/workloads/workloads.ts'
import { type ObjectRef, refOf } from '../../kubeapi/kube/kube.ts'
import type { ClusterAdmin } from '../context/context.ts'

export interface Right {
  readonly verb: string
  readonly group: string
  readonly resource: string
  /** Such as `status`. Undefined if the right is for the resource itself. */
  readonly subresource?: string
  readonly namespace?: string
  /** The name of the object. Undefined if the right is for objects of any name. */
  readonly name?: string
}

/**
 * True if the cluster admits pods by SecurityContextConstraints, as OpenShift, OKD and MicroShift do. The served kind is
 * the sign: what else these have differs.
 */
export function hasSecurityContextConstraints(
  admin: Pick<ClusterAdmin, 'knows'>,
  signal: AbortSignal,
): Promise<boolean> {
  return admin.knows({ apiVersion: 'security.openshift.io/v1', kind: 'SecurityContextConstraints' }, signal)
}

/** A user can grant the use only of those constraints that they may use themselves (RBAC refuses more). */
function grantingUse(...names: readonly string[]): readonly Right[] {
  const of = { verb: 'use', group: 'security.openshift.io', resource: 'securitycontextconstraints' }
  return names.map((name) => ({ ...of, name }))
}

/** The rights that installing a member needs. */
export function memberRights(namespace: string, isOpenShift = false): readonly Right[] {
  return [
    ...(isOpenShift ? applying('security.openshift.io', 'securitycontextconstraints') : []),
    ...within(namespace, isOpenShift ? grantingUse(SCC.unprivileged, SCC.node) : []),
    ...applying('apiextensions.k8s.io', 'customresourcedefinitions'),
    ...applying('', 'namespaces'),
    { verb: 'patch', group: '', resource: 'nodes' },
    { verb: 'patch', group: 'sealane.io', resource: 'memberships' },
    ...applying('rbac.authorization.k8s.io', 'clusterroles', 'clusterrolebindings'),
    ...applying('admissionregistration.k8s.io', 'validatingadmissionpolicies', 'validatingadmissionpolicybindings'),
    ...within(namespace, [
      ...applying('rbac.authorization.k8s.io', 'roles', 'rolebindings'),
      ...applying('', 'configmaps', 'secrets', 'serviceaccounts', 'services', 'resourcequotas'),
      ...applying('apps', 'daemonsets', 'deployments'),
      ...applying('policy', 'poddisruptionbudgets'),
      ...applying('networking.k8s.io', 'networkpolicies'),
    ]),
  ]
}

/** What `join --prefer-local` needs besides. */
export function preferLocalRights(): readonly Right[] {
  return applying('sealane.io', 'clustertrafficpolicies')
}

/** The rights that installing a broker in this form needs. All of its objects are in its namespace. */
export function brokerRights(namespace: string, form: BrokerForm = 'own', isOpenShift = false): readonly Right[] {
  return [
    ...applying('', 'namespaces'),
    ...within(namespace, [
      ...(isOpenShift
        ? [...applying('rbac.authorization.k8s.io', 'rolebindings'), ...grantingUse(SCC.unprivileged)]
        : []),
      ...applying('', 'serviceaccounts', 'services'),
      ...(form === 'own' ? applying('', 'persistentvolumeclaims') : applying('apps', 'deployments')),
      ...(form === 'given' ? [] : applying('apps', 'statefulsets')),
      ...(form === 'included' ? applying('', 'secrets') : []),
      ...applying('policy', 'poddisruptionbudgets'),
      ...applying('networking.k8s.io', 'networkpolicies'),
    ]),
  ]
}

/** What the installation of a broker needs besides, if it follows object Topology. Who grants a right must have it. */
export function topologyRights(): readonly Right[] {
  return [
    ...applying('apiextensions.k8s.io', 'customresourcedefinitions'),
    ...applying('rbac.authorization.k8s.io', 'clusterroles', 'clusterrolebindings'),
    ...['get', 'list', 'watch'].map((verb) => ({ verb, group: 'sealane.io', resource: 'topologies' })),
    { verb: 'patch', group: 'sealane.io', resource: 'topologies', subresource: 'status' },
  ]
}

const VERBS = new Intl.ListFormat('en-GB', { type: 'conjunction' })

/** Server-side apply of a new object needs the latter two; the report of what changed needs the object before. */
const APPLY = ['get', 'create', 'patch'] as const

function applying(group: string, ...resources: readonly string[]): readonly Right[] {
  return resources.flatMap((resource) => APPLY.map((verb) => ({ verb, group, resource })))
}

/** The rights to apply these objects. */
export function applyRights(objects: readonly ManifestObject[]): readonly Right[] {
  return distinct(objects.flatMap((object) => APPLY.map((verb) => rightTo(verb, refOf(object)))))
}

/** The rights to delete these objects. */
export function removalRights(objects: readonly ManifestObject[]): readonly Right[] {
  return distinct(objects.map((object) => rightTo('delete', refOf(object))))
}

/** What a leave does besides removing the objects of an installation in `namespace`. */
export function departureRights(namespace: string): readonly Right[] {
  const both = (group: string, ...resources: readonly string[]): readonly Right[] =>
    resources.flatMap((resource) => ['list', 'delete'].map((verb) => ({ verb, group, resource })))
  return [
    ...both('sealane.io', 'gateways', 'routeagents', 'endpoints', 'clusters', 'memberships'),
    ...['get', 'patch'].map((verb) => ({ verb, group: 'sealane.io', resource: 'memberships' })),
    ...['get', 'delete'].map((verb) => ({ verb, group: 'sealane.io', resource: 'clustertrafficpolicies' })),
    ...both('multicluster.x-k8s.io', 'serviceimports'),
    ...both('discovery.k8s.io', 'endpointslices'),
    ...both('about.k8s.io', 'clusterproperties'),
    ...['list', 'patch'].map((verb) => ({ verb, group: '', resource: 'nodes' })),
    ...within(namespace, [
      ...['get', 'patch'].map((verb) => ({ verb, group: '', resource: 'secrets' })),
      { verb: 'list', group: '', resource: 'pods' },
    ]),
  ]
}

/** What is in `rights` and not in `known`. */
export function rightsBesides(rights: readonly Right[], known: readonly Right[]): readonly Right[] {
  const keys = new Set(known.map(keyOf))
  return rights.filter((right) => !keys.has(keyOf(right)))
}

/** The right to do this with an object. */
export function rightTo(verb: string, { apiVersion, kind, namespace }: ObjectRef): Right {
  const [group = '', version] = apiVersion.split('/')
  const right = { verb, group: version === undefined ? '' : group, resource: resourceOf(kind) }
  return namespace === undefined ? right : { ...right, namespace }
}

/** The plural in URLs of the API. All kinds of a plan follow the rules of English, but for one of OpenShift. */
function resourceOf(kind: string): string {
  const name = kind.toLowerCase()
  if (name === 'dns') return 'dnses'
  return name.endsWith('s') ? name : `${name}s`.replace(/([^aeiou])ys$/, '$1ies')
}

function distinct(rights: readonly Right[]): readonly Right[] {
  return [...new Map(rights.map((right) => [keyOf(right), right])).values()]
}

function keyOf({ verb, group, resource, subresource = '', namespace = '', name = '' }: Right): string {
  return [verb, group, resource, subresource, namespace, name].join(' ')
}

function within(namespace: string, rights: readonly Right[]): readonly Right[] {
  return rights.map((right) => ({ ...right, namespace }))
}

/** Reviews that the API server answers at the same time. */
const AT_ONCE = 8

/**
 * Throws UserError, which lists the missing rights and says what was changed before. Asks for each right once.
 */
export async function checkRights(
  admin: Pick<ClusterAdmin, 'title' | 'create'>,
  rights: readonly Right[],
  signal: AbortSignal,
  changed = 'nothing was changed',
): Promise<void> {
  // By namespace, of which '' is all of them: from an object to the verbs.
  const missing = new Map<string, Map<string, string[]>>()
  const all = distinct(rights)
  for (let i = 0; i < all.length; i += AT_ONCE) {
    const some = all.slice(i, i + AT_ONCE)
    const answers = await Promise.all(some.map((right) => isAllowed(admin, right, signal)))
    for (const [n, { verb, group, resource, subresource, namespace = '', name = '' }] of some.entries()) {
      if (answers[n] === true) continue
      const whole = subresource === undefined ? resource : `${resource}/${subresource}`
      const what = `${whole}${group === '' ? '' : `.${group}`}${name === '' ? '' : ` ${name}`}`
      const there = missing.get(namespace) ?? new Map<string, string[]>()
      missing.set(namespace, there.set(what, [...new Set([...(there.get(what) ?? []), verb])]))
    }
  }
  if (missing.size === 0) return
  const said = [...missing]
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map(([namespace, there]) => {
      const list = [...there].map(([what, verbs]) => `${VERBS.format(verbs)} ${what}`).join(', ')
      return namespace === '' ? list : `${list} in namespace ${namespace}`
    })
  throw new UserError(`${admin.title}: this user may not ${said.join('; ')}`, {
    hint: `use a kubeconfig of a cluster administrator; ${changed}`,
  })
}

async function isAllowed(
  admin: Pick<ClusterAdmin, 'create'>,
  { verb, group, resource, subresource = '', namespace = '', name = '' }: Right,
  signal: AbortSignal,
): Promise<boolean> {
  const review = {
    apiVersion: 'authorization.k8s.io/v1',
    kind: 'SelfSubjectAccessReview',
    metadata: { name: '' },
    spec: { resourceAttributes: { verb, group, resource, subresource, name, namespace } },
  }
  const answer = await admin.create(review, { dryRun: false }, signal)
  return (answer['status'] as { readonly allowed?: boolean }).allowed === true
}
