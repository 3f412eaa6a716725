/** Reports the progress of a long-running command: each question that has ended, with its duration. */
import type { Area, Fact } from '../../../explain/facts/facts.ts'
import type { Output } from '../../context/context.ts'

export interface Progress {
  /** Reports `what` when the work has ended. */
  follow(what: string, work: Promise<readonly Fact[]>): Promise<readonly Fact[]>
}

export const SILENT_PROGRESS: Progress = { follow: (_what, work) => work }

export function progressOn({ remark }: Pick<Output, 'remark'>): Progress {
  return {
    follow: async (what, work) => {
      const began = performance.now()
      const facts = await work
      const unanswered = facts.filter((fact) => fact.t === 'unanswered').length
      const text = unanswered === 0 ? '' : `, ${unanswered} without an answer`
      remark(`${what}: ${Math.round(performance.now() - began)} ms${text}\n`)
      return facts
    },
  }
}

// Decides which probes are relevant for an area. A problem may have its cause in another area.

const AREAS_OF = {
  host: ['access', 'host', 'lanes', 'dns', 'services'],
  dns: ['dns', 'services'],
  definitions: ['parts', 'access', 'services'],
  broker: ['broker', 'membership', 'services'],
} as const satisfies Readonly<Record<string, readonly Area[]>>

/** `area` is undefined for all areas. */
export function isWanted(probe: keyof typeof AREAS_OF, area: Area | undefined): boolean {
  const areas: readonly Area[] = AREAS_OF[probe]
  return area === undefined || areas.includes(area)
}
