/**
 * What the data path of this release can and cannot do, as far as the advice depends on it. A change of the data path
 * changes the row; the advice and its tests follow. docs/operations.md, "Clusters and CNIs", says the same.
 */
export const DATA_PATH = {
  /**
   * Our routing rules (73 to 75) are looked up before a CNI's rules for each pod: 512 to 1536 for the Amazon VPC
   * CNI, 110 and 111 for Cilium with addresses of a cloud.
   */
  rulesBeforeThoseOfPods: true,
  /** gateway and routeagent know which pods a node has also where Node.spec.podCIDRs does not say it. */
  knowsRangesOfCnis: true,
  /** Nodes may have addresses inside the cluster's pod CIDRs, as where pods have addresses of a cloud's network. */
  nodesMayBeInPodCidrs: true,
  /** The identity translation that keeps source addresses comes before masquerading at priority 90. */
  keepsSourceBefore90: true,
} as const satisfies Readonly<Record<string, boolean>>

export type DataPath = Readonly<Record<keyof typeof DATA_PATH, boolean>>
