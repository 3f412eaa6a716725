/**
 * What measurements of the NAT in front of this node need, and all that they have to do with the relays of the gateway:
 * they ask relays from ports of their own, and nothing about links.
 */
import type { OpenProbeSocket } from '../../../kernel/probing/probing.ts'
import type { Address } from '../../../model/addresses/addresses.ts'
import type { Clock } from '../../../reconcile/reconcile.ts'
import type { OwnEnd } from '../frames/bind-frame.ts'

export interface MeasureFacts {
  /** This node as it proves itself to relays. Undefined: it cannot yet. */
  readonly own: OwnEnd | undefined
  readonly relays: readonly MeasureRelay[]
  /** Addresses at which relays see this node now. */
  readonly seen: readonly string[]
  /** Addresses that this node has itself. */
  readonly ownAddresses: ReadonlySet<string>
}

export interface MeasureRelay {
  /** The member whose gateway relays. */
  readonly cluster: string
  readonly identity: string
  readonly address: Address
}

export interface MeasureDeps {
  readonly clock: Clock
  readonly openSocket: OpenProbeSocket
  /** What has been measured has changed. */
  readonly onChange: () => void
}

/** One measurement, repeated for as long as it is looked at. */
export interface NatMeasure {
  /** Takes what is known now. Undefined: this node is not behind NAT. */
  look(facts: MeasureFacts | undefined): void
  close(): void
}
