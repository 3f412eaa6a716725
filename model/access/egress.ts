/** What a ClusterAccessPolicy says besides the default: which namespaces may call which other clusters. Pure. */
import { CLUSTER_ACCESS_POLICY_NAME, type Cluster, type ClusterAccessPolicy, type NamespaceChoice } from '../model.ts'
import { CALLER_FIELDS, accessInForce } from './access-versions.ts'
import { NO_NAMESPACE, togetherChosen } from './callers.ts'
import { hasOnly, matchesLabels } from './match-labels.ts'

type EgressRule = NonNullable<ClusterAccessPolicy['spec']['egress']>[number]

export class EgressRules {
  readonly #rules: readonly EgressRule[]
  readonly #labels: ReadonlyMap<string, Readonly<Record<string, string>> | undefined>

  /** Entries that this release does not understand allow nothing. */
  constructor(rules: readonly EgressRule[], clusters: readonly Pick<Cluster, 'spec'>[]) {
    this.#rules = rules.filter((rule) => hasOnly(rule, CALLER_FIELDS))
    this.#labels = new Map(clusters.map(({ spec }) => [spec.id, spec.labels]))
  }

  /** The namespaces that may call the cluster. Undefined: all, and the nodes themselves. */
  to(cluster: string): NamespaceChoice | undefined {
    const labels = this.#labels.get(cluster)
    const rules = this.#rules.filter(({ clusters, selector }) => {
      if (clusters !== undefined && !clusters.includes(cluster)) return false
      return selector === undefined || (this.#labels.has(cluster) && matchesLabels(selector, labels))
    })
    const choices = rules.map(({ namespaces, namespaceSelector }) =>
      namespaces === undefined && namespaceSelector === undefined
        ? undefined
        : { names: namespaces ?? [], selectors: namespaceSelector === undefined ? [] : [namespaceSelector] },
    )
    const parts = choices.filter((choice) => choice !== undefined)
    if (parts.length < choices.length) return undefined
    return parts.length === 0 ? NO_NAMESPACE : togetherChosen(parts)
  }
}

/** Undefined: nothing is stated, so all namespaces may call all clusters. */
export function egressRules(
  policies: readonly ClusterAccessPolicy[],
  clusters: readonly Pick<Cluster, 'spec'>[],
): EgressRules | undefined {
  const stated = inForce(policies)?.spec.egress
  return stated === undefined ? undefined : new EgressRules(stated, clusters)
}

/** The clusters that no namespace of this one may call. The nodes of this cluster may not call them either. */
export function clustersWithoutEgress(
  policies: readonly ClusterAccessPolicy[],
  clusters: readonly Pick<Cluster, 'spec'>[],
  self: string,
): ReadonlySet<string> {
  const rules = egressRules(policies, clusters)
  if (rules === undefined) return new Set()
  const isShut = (id: string): boolean => {
    const choice = id === self ? undefined : rules.to(id)
    return choice !== undefined && choice.names.length === 0 && choice.selectors.length === 0
  }
  return new Set(clusters.flatMap(({ spec }) => (isShut(spec.id) ? [spec.id] : [])))
}

/** Whether open TCP connections outlast a policy that takes away. */
export function keepsOpenConnections(policies: readonly ClusterAccessPolicy[]): boolean {
  return inForce(policies)?.spec.keepOpenConnections === true
}

function inForce(policies: readonly ClusterAccessPolicy[]): ClusterAccessPolicy | undefined {
  const stated = policies.find(({ metadata }) => metadata.name === CLUSTER_ACCESS_POLICY_NAME)
  return stated && accessInForce(stated)
}
