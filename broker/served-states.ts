/** The states of a running broker's clustersets, for the commands of operators. */
import { join } from 'node:path'
import { type AdminState, type AdminStates, type StateUse, clustersetStateDir, openState } from './admin/admin.ts'
import type { Clock } from '../reconcile/reconcile.ts'
import { DATABASE_FILE, StateError } from './store/store.ts'

export interface ServedStatesInit {
  readonly stateDir: string
  readonly clock: Clock
  /** The broker's own clusterset, or why it is not open yet. */
  readonly own: () => AdminState | string
  /** The other clustersets that are served. */
  readonly others: () => readonly AdminState[]
}

export class ServedStates implements AdminStates {
  readonly #init: ServedStatesInit

  constructor(init: ServedStatesInit) {
    this.#init = init
  }

  async use<T>(clusterset: string | undefined, _mode: StateUse, work: (state: AdminState) => Promise<T>): Promise<T> {
    const own = this.#own()
    const stateDir = clustersetStateDir(own, clusterset)
    const served = [own, ...this.#init.others()].find((one) => one.stateDir === stateDir)
    if (served !== undefined) return work(served)
    // It was removed, or it cannot be served. Only this process may open it.
    const opened = await openState(stateDir, this.#init.clock)
    try {
      return await work(opened)
    } finally {
      await opened.close()
    }
  }

  directoryOf(clusterset: string | undefined): Promise<string> {
    const { stateDir } = this.#init
    return Promise.resolve(clusterset === undefined ? stateDir : clustersetStateDir(this.#own(), clusterset))
  }

  #own(): AdminState {
    const own = this.#init.own()
    if (typeof own !== 'string') return own
    throw new StateError('Unreachable', join(this.#init.stateDir, DATABASE_FILE), `the broker is starting: ${own}`)
  }
}
