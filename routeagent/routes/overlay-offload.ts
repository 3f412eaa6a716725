/**
 * Switches the checksum offload of the overlay device off where a fault of the kernel or the network card is known, or as
 * the site file states, and says so in the RouteAgent. What another program switches back is switched again. The setting
 * goes with the device.
 */
import { type ChecksumOffload, type OffloadPlan, planOffload } from '../../kernel/tuning/tuning.ts'
import {
  CONDITION_CHECKSUM_OFFLOAD,
  type Condition,
  type ConditionFinding,
  type OffloadSetting,
  VXLAN_DEVICE,
  setCondition,
} from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import { messageOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'

export interface OverlayOffloadInit {
  readonly offload: ChecksumOffload
  readonly setting: OffloadSetting
  readonly logger: Logger
}

/** What is known about the device. Without a finding, it stays as it is, and no condition is needed. */
type Known = { readonly finding: ConditionFinding | undefined }

export class OverlayOffload {
  readonly #init: OverlayOffloadInit
  /** Undefined until the device was looked at. The condition of an earlier process stays until then. */
  #known: Known | undefined

  constructor(init: OverlayOffloadInit) {
    this.#init = init
  }

  /** `uplink` is the device that carries the overlay. Failures are in the condition and in the log. Throws on abort. */
  async apply(uplink: string, signal: AbortSignal): Promise<void> {
    const { offload, setting, logger } = this.#init
    const plan = planOffload(setting, await offload.machine(uplink))
    const before = this.#known?.finding
    if (plan.wanted === 'any') {
      this.#known = { finding: undefined }
      return
    }
    try {
      const command = await offload.ensure(VXLAN_DEVICE, plan.wanted, signal)
      const found = switched(plan)
      this.#known = { finding: conditionOf(found) }
      if (command === undefined) return
      const { reason, why } = found
      logger.info('checksum offload of the overlay device was switched', { reason, command, why })
    } catch (error) {
      signal.throwIfAborted()
      const found = notSwitched(plan, messageOf(error))
      this.#known = { finding: conditionOf(found) }
      const { reason, why } = found
      if (before?.message !== why) logger.warn('checksum offload of the overlay device stays as it is', { reason, why })
    }
  }

  /** The conditions of the RouteAgent, with the one about this. */
  conditions(list: readonly Condition[], nowMs: number): readonly Condition[] {
    if (this.#known === undefined) return list
    const { finding } = this.#known
    if (finding !== undefined) return setCondition(list, finding, nowMs)
    return list.filter(({ type }) => type !== CONDITION_CHECKSUM_OFFLOAD)
  }
}

type Wanted = Exclude<OffloadPlan, { readonly wanted: 'any' }>

interface Found {
  readonly status: Condition['status']
  readonly reason: ReasonCode
  readonly why: string
}

function switched({ wanted, fault }: Wanted): Found {
  const status = wanted === 'on' ? 'True' : 'False'
  return fault === undefined
    ? { status, reason: 'ChecksumOffloadStated', why: `${wanted}, as spec.overlay.checksumOffload states` }
    : { status, reason: 'ChecksumOffloadFault', why: `${wanted}: ${fault}` }
}

function notSwitched({ wanted, fault }: Wanted, failure: string): Found {
  const because = fault ?? 'spec.overlay.checksumOffload states it'
  const why = `it is to be ${wanted}: ${because}; ${failure}`
  return { status: 'Unknown', reason: 'ChecksumOffloadNotSwitched', why }
}

function conditionOf({ status, reason, why }: Found): ConditionFinding {
  return { type: CONDITION_CHECKSUM_OFFLOAD, status, reason, message: why }
}
