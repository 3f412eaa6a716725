/** All measurements of the NAT in front of this node, as one for the relays of the gateway. */
import type { AddressPort } from '../../../model/addresses/addresses.ts'
import type { Logger } from '../../../runtime/logging/logging.ts'
import type { MeasureDeps, MeasureFacts, NatMeasure } from './measure-facts.ts'
import { NatLife } from './nat-life.ts'
import { NatWatch } from './nat-watch.ts'
import type { NatSights } from './sight-caller.ts'

export interface NatMeasuresInit extends MeasureDeps {
  readonly logger: Logger
  /** NatWatchInit.mayProbe. */
  readonly mayProbe: (at: AddressPort) => boolean
}

export class NatMeasures implements NatMeasure {
  readonly #init: NatMeasuresInit
  readonly #life: NatLife
  readonly #watch: NatWatch

  constructor(init: NatMeasuresInit) {
    const { clock, openSocket, mayProbe, onChange } = init
    this.#init = init
    this.#life = new NatLife({ clock, openSocket, onChange: () => this.#measured() })
    this.#watch = new NatWatch({ clock, openSocket, mayProbe, onChange })
  }

  /** For how many seconds a mapping lives without packets, at least. Undefined: not known, or there is no NAT. */
  get lifeSeconds(): number | undefined {
    return this.#life.seconds
  }

  /** What relays have shown of the NAT. */
  get sights(): NatSights {
    return this.#watch.sights
  }

  look(facts: MeasureFacts | undefined): void {
    this.#life.look(facts)
    this.#watch.look(facts)
  }

  close(): void {
    this.#life.close()
    this.#watch.close()
  }

  #measured(): void {
    const { seconds } = this.#life
    if (seconds !== undefined) {
      const life = seconds === 0 ? 'less than 10 s' : `${seconds} s or more`
      this.#init.logger.info(`the NAT in front of this node keeps a mapping without packets for ${life}`)
    }
    this.#init.onChange()
  }
}
