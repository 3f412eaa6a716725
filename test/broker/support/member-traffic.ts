/** Continuous publications of one member, and a check that other members receive them. */
import type { Test } from 'tap'
import { eventually } from '../../support/eventually.ts'
import { OWN_PATIENCE } from './authority-commands.ts'
import { aSlice, anExport } from './harness.ts'
import type { LinkedMember } from './linked-member.ts'

/**
 * Publishes until it is stopped. `seen` waits until the other members have a publication that is newer than the call.
 */
export class Traffic {
  readonly #from: LinkedMember
  readonly #timer: NodeJS.Timeout
  #count = 0
  constructor(t: Test, from: LinkedMember) {
    this.#from = from
    this.#timer = setInterval(() => this.#publish(), 50)
    t.teardown(() => this.stop())
  }
  stop(): void {
    clearInterval(this.#timer)
  }
  async seen(...by: readonly LinkedMember[]): Promise<void> {
    const after = this.#count
    for (const member of by) {
      await eventually(() => numberIn(member.knows(`${this.#from.id}/EndpointSlice/shop/web-1`)) > after, {
        ...OWN_PATIENCE,
        say: `${member.id} sees what ${this.#from.id} publishes now`,
      })
    }
  }
  #publish(): void {
    this.#count += 1
    const address = `10.42.${Math.floor(this.#count / 200)}.${1 + (this.#count % 200)}`
    this.#from.publish(anExport('web'), aSlice('web', address))
  }
}

function numberIn(body: string | undefined): number {
  const [, high, low] = /"10\.42\.(\d+)\.(\d+)"/.exec(body ?? '') ?? []
  return high === undefined ? -1 : Number(high) * 200 + Number(low) - 1
}
