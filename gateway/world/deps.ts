/** What the gateway needs from its surroundings, and how its loops report a failed round. */
import type { Nft } from '../../kernel/nft/nft.ts'
import type { OpenProbeSocket } from '../../kernel/probing/probing.ts'
import type { NextHopTable, RouteTable } from '../../kernel/route/route.ts'
import type { Sysctl } from '../../kernel/tuning/tuning.ts'
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import type { Clock, TcpProbe, LoopDeps } from '../../reconcile/reconcile.ts'
import {
  type ComponentDeps,
  type Failure,
  type LoopRun,
  type MachineNetwork,
  messageOf,
  reasonOf,
  reportedLoop,
} from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { ProxyChoice } from '../../runtime/proxy/proxy.ts'
import type { Cable } from '../cable/cable.ts'

/** What this node knows of the node that takes over its lane. */
export interface Handover {
  /** Links, by healthKey(), that the other node has up. This node sends nothing over its own links of these keys. */
  handedOver(): ReadonlySet<string>
  /** True if this node is about to leave, or its process is about to end and its lane with it. */
  leaving(): boolean
  /**
   * Called after each attempt to create the lane. `failure` says why the lane or its link to some cluster does not
   * work, and is undefined if they work.
   */
  tried(failure: string | undefined): void
  /** Calls back after each change. Returns the function that ends this. */
  onChange(listener: () => void): () => void
}

export interface GatewayDeps extends ComponentDeps {
  readonly api: ClusterApi
  readonly routes: RouteTable
  /** Next-hop objects of the same kernel. Absent: routes have next hops of their own. */
  readonly nextHops?: NextHopTable
  /** nftables of family ip. */
  readonly nft: Nft
  /** nftables of family ip6. */
  readonly nft6: Nft
  /** Creates the links. */
  readonly cable: Cable
  readonly sysctl: Sysctl
  /** Absent: the real UDP socket. */
  readonly openProbeSocket?: OpenProbeSocket
  /** Absent: the real TCP probe (runtime/tcp-probe.ts). */
  readonly probeTcp?: TcpProbe
  /** The proxy that leads to a relay on port 443. Absent: by HTTPS_PROXY and NO_PROXY. */
  readonly proxies?: ProxyChoice
  /** All addresses of a DNS name. Throws if it has none or nothing answers. Absent: the resolver of the system. */
  readonly resolveName?: (name: string) => Promise<readonly string[]>
  /** Absent: default gateways and name servers are not known. */
  readonly machineNetwork?: () => Promise<MachineNetwork>
  /** Absent if no other node can serve this node's lane. */
  readonly handover?: Handover
}

// How the gateway's loops report that a round failed.

interface LoopParts {
  readonly clock: Clock
  readonly logger: Logger
  /** Called after each run. */
  readonly count?: (run: LoopRun) => void
}

export interface GatewayLoopDeps extends LoopDeps {
  /** Why the last round failed. Undefined if it succeeded. */
  readonly failure: Failure | undefined
}

/**
 * `loop` is the name in log lines. These loops retry every second, so a failure is logged only when its message
 * changes.
 */
export function loopDeps({ clock, logger, count = () => undefined }: LoopParts, loop: string): GatewayLoopDeps {
  const reported = reportedLoop({ clock, logger, loop, count })
  let failure: Failure | undefined
  return {
    clock,
    onError: (error) => {
      const known = failure?.message
      failure = { message: messageOf(error), reason: reasonOf(error) ?? 'RoundFailed' }
      if (failure.message !== known) reported.onError(error)
    },
    onRun: (run) => {
      if (run.ok) failure = undefined
      reported.onRun?.(run)
    },
    get failure() {
      return failure
    },
  }
}
