/** Packets from lanes and pods. */
import type { AttackRow } from './row.ts'

export const DATA_PLANE: readonly AttackRow[] = []
