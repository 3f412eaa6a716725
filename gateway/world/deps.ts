/** What the gateway works with. */
import type { Nft } from '../../kernel/nft/nft.ts'
import type { OpenProbeSocket } from '../../kernel/probing/probing.ts'
import type { NextHopTable, RouteTable } from '../../kernel/route/route.ts'
import type { Sysctl } from '../../kernel/tuning/tuning.ts'
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import type { Clock, Knock, LoopDeps } from '../../reconcile/reconcile.ts'
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
import type { Cable } from '../cable/cable.ts'

/** What is known of the node that takes over the lane of this one. */
export interface Handover {
  /** Links, by healthKey(), that the other node has up. Nothing is sent over this node's own any more. */
  handedOver(): ReadonlySet<string>
  /** This node is about to go, or its process is and its lane with it. */
  leaving(): boolean
  /** After each try to make the lane: why it leads nowhere, or not to some cluster; undefined where it is there. */
  tried(failure: string | undefined): void
  /** Calls back after each change. Gives the function that ends it. */
  onChange(listener: () => void): () => void
}

export interface GatewayDeps extends ComponentDeps {
  readonly api: ClusterApi
  readonly routes: RouteTable
  /** Next-hop objects of the same kernel. Absent: routes have next hops of their own. */
  readonly nextHops?: NextHopTable
  /** Family ip. */
  readonly nft: Nft
  /** Family ip6. */
  readonly nft6: Nft
  /** Makes the links. */
  readonly cable: Cable
  readonly sysctl: Sysctl
  /** The real UDP socket where absent. */
  readonly openProbeSocket?: OpenProbeSocket
  /** The real one where absent (runtime/tcp-probe.ts). */
  readonly knock?: Knock
  /** Absent: default gateways and name servers are not known. */
  readonly machineNetwork?: () => Promise<MachineNetwork>
  /** Absent where nobody else can serve this node's lanes. */
  readonly handover?: Handover
}

// What the gateway's loops have in common: how they report that a round failed.

interface LoopParts {
  readonly clock: Clock
  readonly logger: Logger
  /** Called after each run. */
  readonly count?: (run: LoopRun) => void
}

export interface GatewayLoopDeps extends LoopDeps {
  /** Why the last round failed; undefined when it went well. */
  readonly failure: Failure | undefined
}

/** `loop` names it in log lines. A failure is logged once, until it is another: these loops try again every second. */
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
