/** The zone that the DNS benchmark asks about, and its questions. */
export const ZONE = 'clusterset.local'
export const SERVICES = 10_000
const NAMESPACES = 100

export interface BenchService {
  readonly namespace: string
  readonly name: string
  readonly ip: string
}

export function services(): BenchService[] {
  return Array.from({ length: SERVICES }, (_, i) => ({
    namespace: `team-${i % NAMESPACES}`,
    name: `service-${i}`,
    ip: `245.0.${i >> 8}.${i & 0xff}`,
  }))
}

export type Question = 'address' | 'absent'

/** A file for dnsperf: every service once, or as many names that do not exist. The order is the same in every run. */
export function questions(kind: Question): string {
  const prefix = kind === 'absent' ? 'no-' : ''
  const names = services().map(({ namespace, name }) => `${prefix}${name}.${namespace}.svc.${ZONE} A`)
  return names.sort((a, b) => shuffleKey(a) - shuffleKey(b)).join('\n')
}

function shuffleKey(text: string): number {
  let hash = 0
  for (const character of text) hash = Math.imul(hash ^ character.charCodeAt(0), 0x01000193)
  return hash
}
