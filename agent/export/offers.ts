/**
 * Decides to whom each export is offered. Equal offers are the same object, round after round, so that a changed policy
 * changes only the exports whose offer it changes. Pure.
 */
import {
  type AccessDefault,
  AccessRules,
  type Exposure,
  cutCallers,
  offeredClusters,
} from '../../model/access/access.ts'
import {
  type AccessPolicy,
  CLUSTER_ACCESS_POLICY_NAME,
  type Cluster,
  type ClusterAccessPolicy,
  type ClusterId,
  type NamespaceLists,
  type Offer,
  type ServiceKey,
} from '../../model/model.ts'
import { KeyedMemo } from '../../reconcile/reconcile.ts'

/** What this cluster states about access. All of it must have been read: a missing policy would open. */
export interface ExportAccess {
  readonly exposure: Exposure
  /** Undefined while the broker has not stated it: it then counts as allow. */
  readonly clustersetDefault?: AccessDefault | undefined
  /** Which namespaces are exported. */
  readonly namespaces?: NamespaceLists | undefined
  readonly clusterPolicies: readonly ClusterAccessPolicy[]
  readonly policies: readonly AccessPolicy[]
  /** The members, with the labels that selectors see. */
  readonly clusters: readonly Cluster[]
}

export interface ExportOffer {
  readonly offer: Offer
  /** The members that the offer names, sorted. Undefined: all. */
  readonly clusters: readonly ClusterId[] | undefined
  /** What of the policies the offer does not carry, for people. */
  readonly cut?: string
}

type Members = readonly Pick<Cluster, 'spec'>[]

interface Decided {
  readonly rules: AccessRules
  /** The offer as text. */
  readonly text: string
  readonly known: ExportOffer
}

/** After the text of an offer that is cut. */
const CUT = '…'
const MAX_NAMED = 3

function described(offer: Offer, isCut: boolean): ExportOffer {
  const known = { offer, clusters: offeredClusters(offer) }
  if (isCut) return { ...known, cut: 'its AccessPolicies name more members and namespaces than an offer carries' }
  const ids = cutCallers(offer)
  if (ids.length === 0) return known
  const more = ids.length > MAX_NAMED ? ` and ${ids.length - MAX_NAMED} more` : ''
  return {
    ...known,
    cut: `its AccessPolicies name too many namespaces of ${ids.slice(0, MAX_NAMED).join(', ')}${more}`,
  }
}

/** A cache between rounds. It saves work but does not change the result. */
export class OfferMemory {
  readonly #rules = new KeyedMemo<AccessRules>()
  #offers = new Map<ServiceKey, Decided>()
  /** By the object that the rules give, which services of one namespace share. */
  readonly #texts = new WeakMap<NonNullable<Offer>, string>()
  #members: { readonly text: string; readonly members: Members } = { text: '', members: [] }
  /** How many policies were read and how many offers were decided since the start. */
  readonly work = { policies: 0, offers: 0 }

  /** Decides about all exports. */
  decide(self: string, access: ExportAccess, exports: Iterable<ServiceKey>): ReadonlyMap<ServiceKey, ExportOffer> {
    const { clustersetDefault, clusterPolicies, policies, namespaces } = access
    const own = clusterPolicies.find(({ metadata }) => metadata.name === CLUSTER_ACCESS_POLICY_NAME)
    const byNamespace = Map.groupBy(policies, ({ metadata }) => metadata.namespace ?? '')
    // Only selectors of policies see the members.
    const members = policies.length === 0 ? [] : this.#membersOf(access.clusters)
    const rulesOf = (namespace: string): AccessRules => {
      const here = byNamespace.get(namespace) ?? []
      const clusters = here.length === 0 ? [] : members
      const stated = here.flatMap(({ metadata, spec }) => [metadata.name, spec])
      return this.#rules.get(
        namespace,
        [self, clustersetDefault, namespaces, own?.spec.default, clusters, stated],
        () => {
          this.work.policies += here.length
          return new AccessRules({ self, clustersetDefault, namespaces, clusterPolicies, policies: here, clusters })
        },
      )
    }
    const rules = new Map<string, AccessRules>()
    const offers = new Map<ServiceKey, Decided>()
    const byText = new Map<string, ExportOffer>()
    for (const key of exports) {
      const namespace = key.slice(0, key.indexOf('/'))
      let found = rules.get(namespace)
      if (found === undefined) rules.set(namespace, (found = rulesOf(namespace)))
      const before = this.#offers.get(key)
      offers.set(key, before?.rules === found ? before : this.#decideOne(key, found, before, byText))
    }
    this.#rules.endRound()
    this.#offers = offers
    return new Map([...offers].map(([key, { known }]) => [key, known]))
  }

  #decideOne(
    key: ServiceKey,
    rules: AccessRules,
    before: Decided | undefined,
    byText: Map<string, ExportOffer>,
  ): Decided {
    this.work.offers += 1
    const at = key.indexOf('/')
    const { offer, isCut } = rules.offerOf(key.slice(0, at), key.slice(at + 1))
    const text = this.#textOf(offer) + (isCut === true ? CUT : '')
    const same = before?.text === text ? before.known : byText.get(text)
    const known = same ?? described(offer, isCut === true)
    byText.set(text, known)
    return { rules, text, known }
  }

  #textOf(offer: Offer): string {
    if (offer === undefined) return ''
    let text = this.#texts.get(offer)
    if (text === undefined) this.#texts.set(offer, (text = JSON.stringify(offer)))
    return text
  }

  /** The same object while ids and labels are the same: statuses of Clusters change all the time. */
  #membersOf(clusters: readonly Cluster[]): Members {
    const members = clusters.map(({ spec: { id, labels } }) => ({ id, labels }))
    const text = JSON.stringify(members.sort((a, b) => (a.id < b.id ? -1 : 1)))
    if (text !== this.#members.text) this.#members = { text, members: clusters }
    return this.#members.members
  }
}
