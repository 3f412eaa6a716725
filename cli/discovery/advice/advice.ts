/** What follows from a discovery: what Sealane does itself, what the user must do, what does not work. Pure. */
import { CNI_ROWS } from './advice-cni.ts'
import { PLATFORM_ROWS } from './advice-platform.ts'
import type { Advice } from './advice-row.ts'
import { DATA_PATH, type DataPath } from './data-path.ts'
import type { Discovery } from '../discover.ts'

export type { Advice } from './advice-row.ts'

/** The most urgent first. */
export function advice(discovery: Discovery, options: { readonly dataPath?: DataPath } = {}): Advice[] {
  const world = { discovery, dataPath: options.dataPath ?? DATA_PATH }
  const given = [...CNI_ROWS, ...PLATFORM_ROWS].map((row) => row(world)).filter((one) => one !== undefined)
  return given.sort((a, b) => WEIGHT[b.kind] - WEIGHT[a.kind])
}

/** What stops a join without `--force`. */
export function hindrances(given: readonly Advice[]): Advice[] {
  return given.filter((one) => one.kind === 'unsupported')
}

const WEIGHT: Readonly<Record<Advice['kind'], number>> = {
  unsupported: 4,
  instruction: 3,
  action: 2,
  limit: 1,
  nothing: 0,
}
