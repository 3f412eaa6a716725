/** Decides to whom each exported service is offered, from the policies of the exporter's cluster. Pure. */
import {
  type AccessCallers,
  type AccessPolicy,
  CLUSTER_ACCESS_POLICY_NAME,
  type Cluster,
  type ClusterAccessPolicy,
  type ClusterId,
  type NamespaceChoice,
  type NamespaceLists,
  type Offer,
  type OfferRule,
  unexportedNamespace,
} from '../model.ts'
import { CALLER_FIELDS, accessInForce, hasKnownTargets, unknownPolicyParts } from './access-versions.ts'
import { hasOnly, matchesLabels } from './match-labels.ts'
import { RulesJoiner } from './joined-rules.ts'
import { TO_ALL, TO_NOBODY } from './offer.ts'

export type AccessDefault = ClusterAccessPolicy['spec']['default']

export interface AccessWorld {
  /** The id of the exporter. */
  readonly self: string
  /** Undefined at a member of an earlier release until the broker has stated it: it then counts as allow. */
  readonly clustersetDefault?: AccessDefault | undefined
  /** The lists of the exporter. */
  readonly namespaces?: NamespaceLists | undefined
  /**
   * At most one has the name that counts. Of a policy that is not valid, its latest valid version counts: by its status,
   * unless AccessVersions has found it.
   */
  readonly clusterPolicies: readonly ClusterAccessPolicy[]
  readonly policies: readonly AccessPolicy[]
  /** The members, with the labels that selectors see. */
  readonly clusters: readonly Pick<Cluster, 'spec'>[]
}

/** What decided about an offer. */
export type OfferCause =
  | { readonly by: 'policies'; readonly names: readonly string[] }
  | { readonly by: 'cluster-default'; readonly default: AccessDefault }
  | { readonly by: 'clusterset-default'; readonly default: AccessDefault }
  /** The member excludes the namespace. `why` follows its name. */
  | { readonly by: 'namespace'; readonly why: string }
  /** The broker has not stated the default of the clusterset yet, and it counts as allow. */
  | { readonly by: 'not-stated' }

export interface DecidedOffer {
  readonly offer: Offer
  readonly cause: OfferCause
  /** The policies name more callers than an offer carries. The rest may not call. */
  readonly isCut?: true
}

const NO_RULES: readonly OfferRule[] = []

/** On a policy that Sealane puts in place of one that cannot be read: the file of the user that may hold it. */
export const ANNOTATION_UNREAD_FILE = 'sealane.io/unread-file'

/** The rules of one cluster. Built once for many services: a policy is looked at only for those of its namespace. */
export class AccessRules {
  readonly #self: string
  /** The labels that selectors see, by the id of the member. */
  readonly #labels: ReadonlyMap<string, Readonly<Record<string, string>> | undefined>
  readonly #byNamespace = new Map<string, AccessPolicy[]>()
  readonly #read = new Map<string, NamespacePolicies>()
  /** By `from` as JSON: many policies name the same callers. */
  readonly #resolved = new Map<string, readonly OfferRule[]>()
  /** By the ids and the selector of callers as JSON. */
  readonly #chosen = new Map<string, readonly ClusterId[]>()
  readonly #fallback: DecidedOffer
  readonly #lists: NamespaceLists

  constructor(world: AccessWorld) {
    this.#self = world.self
    this.#labels = new Map(world.clusters.map(({ spec }) => [spec.id, spec.labels]))
    this.#fallback = fallback(world)
    this.#lists = world.namespaces ?? {}
    for (const policy of world.policies) pushTo(this.#byNamespace, policy.metadata.namespace ?? '', policy)
  }

  /** To whom the service is offered. Takes its namespace and name, which are those of its ServiceExport. */
  offerOf(namespace: string, name: string): DecidedOffer {
    const why = unexportedNamespace(namespace, this.#lists)
    if (why !== undefined) return { offer: TO_NOBODY, cause: { by: 'namespace', why } }
    const known = this.#policiesOf(namespace)
    const named = known?.ofService.get(name) ?? []
    if (known === undefined || known.ofAll.length + named.length === 0) return this.#fallback
    const { ofAll } = known
    const joiner = (known.joiner ??= new RulesJoiner(this.#rulesOf(ofAll)))
    const { shared } = joiner
    const all = named.length === 0 ? shared : joiner.with(this.#rulesOf(named))
    const isCut = shared.isCut || all.isCut
    // Ten thousand services of one namespace may have ten thousand policies, and few readers want the names.
    return {
      offer: all.rules,
      ...(isCut ? { isCut } : {}),
      get cause() {
        return {
          by: 'policies',
          names: [...ofAll, ...named].sort(byName).map(({ metadata }) => metadata.name),
        } as const
      },
    }
  }

  /** Read only when a service of the namespace is looked at: a change of one policy makes new rules. */
  #policiesOf(namespace: string): NamespacePolicies | undefined {
    const policies = this.#byNamespace.get(namespace)
    let read = this.#read.get(namespace)
    if (policies === undefined || read !== undefined) return read
    read = { ofAll: [], ofService: new Map() }
    for (const policy of policies.map(accessInForce).sort(byName)) {
      const targets = policyTargets(policy)
      if (targets === undefined) read.ofAll.push(policy)
      else for (const name of targets) pushTo(read.ofService, name, policy)
    }
    this.#read.set(namespace, read)
    return read
  }

  /** What the author of the policy should know. The policy need not be one of the world. */
  notesOn(stated: AccessPolicy): PolicyNotes {
    const policy = accessInForce(stated)
    const ids = policy.spec.from.flatMap(({ clusters = [] }) => clusters)
    return {
      unknownParts: unknownPolicyParts(stated),
      unknownIds: [...new Set(ids)].filter((id) => id !== this.#self && !this.#labels.has(id)).sort(),
      namesNobody: this.#rulesOf([policy]).length === 0,
    }
  }

  #rulesOf(policies: readonly AccessPolicy[]): readonly OfferRule[] {
    const [first, ...others] = policies
    if (first !== undefined && others.length === 0) return this.#rulesOfOne(first)
    return policies.flatMap((policy) => this.#rulesOfOne(policy))
  }

  // A part that this release does not understand names nobody: it must not let in more than its author meant.
  #rulesOfOne(policy: AccessPolicy): readonly OfferRule[] {
    if (!hasKnownTargets(policy)) return NO_RULES
    const text = JSON.stringify(policy.spec.from)
    let rules = this.#resolved.get(text)
    if (rules === undefined) this.#resolved.set(text, (rules = this.#resolve(policy)))
    return rules
  }

  #resolve(policy: AccessPolicy): readonly OfferRule[] {
    return policy.spec.from.flatMap((callers) => {
      if (!hasOnly(callers, CALLER_FIELDS)) return []
      const clusters = this.#clustersOf(callers)
      if (clusters.length === 0) return []
      const namespaces = namespacesOf(callers)
      return [namespaces === undefined ? { clusters } : { clusters, namespaces }]
    })
  }

  // Ids without a member are kept: that cluster may join later. Without ids, only members that are known count.
  #clustersOf({ clusters, selector }: AccessCallers): readonly ClusterId[] {
    const text = JSON.stringify([clusters ?? null, selector ?? null])
    let chosen = this.#chosen.get(text)
    if (chosen === undefined) this.#chosen.set(text, (chosen = this.#choose(clusters, selector)))
    return chosen
  }

  #choose(clusters: AccessCallers['clusters'], selector: AccessCallers['selector']): readonly ClusterId[] {
    const named: Iterable<string> = clusters ?? this.#labels.keys()
    const chosen = [...named].filter((id) => {
      if (id === this.#self) return false
      if (selector === undefined) return true
      const known = this.#labels.get(id)
      return known !== undefined && matchesLabels(selector, known)
    })
    return [...new Set(chosen)].sort() as ClusterId[]
  }
}

function fallback({ clustersetDefault, clusterPolicies }: AccessWorld): DecidedOffer {
  const stated = clusterPolicies.find(({ metadata }) => metadata.name === CLUSTER_ACCESS_POLICY_NAME)
  const own = stated && accessInForce(stated).spec.default
  // Anything but allow, such as a word of a later release, closes.
  if (own !== undefined && own !== 'allow') return { offer: TO_NOBODY, cause: { by: 'cluster-default', default: own } }
  if (clustersetDefault !== undefined && clustersetDefault !== 'allow')
    return { offer: TO_NOBODY, cause: { by: 'clusterset-default', default: clustersetDefault } }
  if (own !== undefined) return { offer: TO_ALL, cause: { by: 'cluster-default', default: own } }
  if (clustersetDefault === undefined) return { offer: TO_ALL, cause: { by: 'not-stated' } }
  return { offer: TO_ALL, cause: { by: 'clusterset-default', default: clustersetDefault } }
}

/** The policies of one namespace, sorted by name. */
interface NamespacePolicies {
  readonly ofAll: AccessPolicy[]
  readonly ofService: Map<string, AccessPolicy[]>
  /** Has what `ofAll` alone offers. */
  joiner?: RulesJoiner
}

/**
 * The names of the services of the policy, each once. Undefined: all of the namespace, also with an empty list. A policy
 * whose targets are not fully understood counts for every service: it then only closes. Takes what accessInForce() gives.
 */
export function policyTargets(policy: AccessPolicy): ReadonlySet<string> | undefined {
  const { targetRefs = [] } = policy.spec
  return targetRefs.length === 0 || !hasKnownTargets(policy) ? undefined : new Set(targetRefs.map(({ name }) => name))
}

function pushTo<V>(lists: Map<string, V[]>, key: string, value: V): void {
  const list = lists.get(key)
  if (list === undefined) lists.set(key, [value])
  else list.push(value)
}

export interface PolicyNotes {
  /** What this release does not understand, by unknownPolicyParts(). It names nobody. */
  readonly unknownParts: readonly string[]
  /** Ids that no member has, sorted. They count as soon as such a cluster joins. */
  readonly unknownIds: readonly string[]
  /** Whether no other cluster may call by this policy. */
  readonly namesNobody: boolean
}

function namespacesOf({ namespaces, namespaceSelector }: AccessCallers): NamespaceChoice | undefined {
  if (namespaces === undefined && namespaceSelector === undefined) return undefined
  return {
    names: [...new Set(namespaces)].sort(),
    selectors: namespaceSelector === undefined ? [] : [namespaceSelector],
  }
}

function byName(a: AccessPolicy, b: AccessPolicy): number {
  return a.metadata.name < b.metadata.name ? -1 : a.metadata.name > b.metadata.name ? 1 : 0
}
