/** A broker that was broken into. */
import type { AttackRow } from './row.ts'

export const BROKER: readonly AttackRow[] = []
