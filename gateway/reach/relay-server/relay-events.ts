/** What happens to a relay, and what it does then: questions of ends, and changes of who may ask. */
import type { AddressPort } from '../../../model/addresses/addresses.ts'
import type { BindAnswer } from '../frames/bind-frame.ts'
import type { EchoAnswer } from '../frames/echo-frame.ts'
import type { HoldAnswer } from '../frames/hold-frame.ts'

/** An end that may use the relay: a gateway of a member. */
export interface RelayEnd {
  /** The member, which has quotas and limits for all of its ends. */
  readonly member: string
  /** CableRules.identityOf() of its Endpoint. */
  readonly identity: string
}

export type RelayEvent =
  /** The whole list of those that may use the relay. Whoever is not in it any more loses its bindings at once. */
  | {
      readonly kind: 'ends'
      readonly ends: readonly RelayEnd[]
      /** Whether ends of these two members may be linked. */
      readonly mayLink: (a: string, b: string) => boolean
      /** Whether relays alone may carry what these two members send each other. Absent: they have other ways. */
      readonly isTransit?: ((a: string, b: string) => boolean) | undefined
    }
  | { readonly kind: 'question'; readonly bytes: Buffer; readonly from: AddressPort; readonly port: number }
  /** Octets that the kernel has forwarded since the last event of this kind, by RelayPath.number. */
  | { readonly kind: 'carried'; readonly octets: ReadonlyMap<number, number> }
  | { readonly kind: 'time' }
  /** Answers to ends that measure their NAT may be due: lateDueMs. */
  | { readonly kind: 'late' }

/** What an event did. */
export interface RelayEffect {
  /** For the sender of a question. */
  readonly answer?: Buffer
  /** For an end that measures its NAT, besides the answer. */
  readonly second?: SecondAnswer
  /** Answers whose time has come, from the control port. Absent: none. */
  readonly late?: readonly LateAnswer[]
  /** paths(), known() or openPorts() may differ. */
  readonly isChanged: boolean
  /** What became of a question, for counters. Nothing is sent for those in SILENT. */
  readonly outcome?: QuestionOutcome
}

/** Goes to the address of the sender, at once. */
export interface SecondAnswer {
  /** From a port of the relay that has no other use, or from the control port. */
  readonly leaves: 'other port' | 'control port'
  readonly to: AddressPort
  readonly answer: Buffer
}

export interface LateAnswer {
  readonly to: AddressPort
  readonly answer: Buffer
}

export const SILENT = ['malformed', 'badSource', 'unknownEnd', 'wrongMac', 'tooMany'] as const
export type QuestionOutcome = (typeof SILENT)[number] | BindAnswer['type'] | HoldAnswer['type'] | EchoAnswer['type']
