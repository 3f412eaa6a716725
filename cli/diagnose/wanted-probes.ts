/** Which closer looks say something about an area: causes are looked for wherever they may be. */
import type { Area } from '../../explain/finding.ts'

const AREAS_OF = {
  host: ['access', 'host', 'lanes', 'dns', 'services'],
  dns: ['dns', 'services'],
  definitions: ['parts', 'access', 'services'],
  broker: ['broker', 'membership', 'services'],
} as const satisfies Readonly<Record<string, readonly Area[]>>

/** `area` undefined: all. */
export function isWanted(probe: keyof typeof AREAS_OF, area: Area | undefined): boolean {
  const areas: readonly Area[] = AREAS_OF[probe]
  return area === undefined || areas.includes(area)
}
