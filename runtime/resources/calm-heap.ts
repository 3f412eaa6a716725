/**
 * A heap that was large for a while keeps its pages, with what lives spread thinly over them. V8 moves that together
 * when its last few collections, which an idle server has minutes apart, say that little is allocated, or when the
 * process asks it to prefer size to speed. The process asks while it has little to do.
 */
import { performance } from 'node:perf_hooks'
import { setFlagsFromString } from 'node:v8'
import type { Clock } from '../../reconcile/clock.ts'
import { unlessAborted } from '../../reconcile/until-aborted.ts'

export interface Heap {
  /** Share of the time since the last look in which the event loop had work, 0 to 1. */
  busy(): number
  /** Of collections from now on. */
  preferSize(on: boolean): void
}

const LOOK_MS = 5000
const CALM = 0.2
const BUSY = 0.5

/** The heap of this process. */
export function ownHeap(): Heap {
  let before = performance.eventLoopUtilization()
  return {
    busy: () => {
      const now = performance.eventLoopUtilization()
      const { utilization } = performance.eventLoopUtilization(now, before)
      before = now
      return utilization
    },
    preferSize: (on) => setFlagsFromString(on ? '--optimize-for-size' : '--no-optimize-for-size'),
  }
}

/** Until the signal. Size is preferred once the event loop works for less than a fifth of the time, up to a half. */
export async function calmHeap(heap: Heap, clock: Clock, signal: AbortSignal): Promise<void> {
  let prefersSize = false
  while (await unlessAborted(clock.sleep(LOOK_MS, signal), signal)) {
    const busy = heap.busy()
    const wanted: boolean = prefersSize ? busy < BUSY : busy < CALM
    if (wanted !== prefersSize) heap.preferSize(wanted)
    prefersSize = wanted
  }
  if (prefersSize) heap.preferSize(false)
}
