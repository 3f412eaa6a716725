/** What benchmarks of network namespaces ask first: their options, and whether this machine can run them. */
import { parseArgs } from 'node:util'
import { requirePackages } from '../scripts/install-system-packages.ts'
import { netnsMissing } from '../test/support/netns.ts'

export interface Rounds {
  readonly rounds: number
  /** How long one measurement takes. */
  readonly seconds: number
}

/** Reads `--rounds` and `--seconds`. Throws Error for anything but whole numbers above 0, and where none can run. */
export function readRounds(standard: Rounds): Rounds {
  const { values } = parseArgs({
    options: {
      json: { type: 'boolean' },
      rounds: { type: 'string', default: String(standard.rounds) },
      seconds: { type: 'string', default: String(standard.seconds) },
    },
  })
  requirePackages('bench')
  const missing = netnsMissing()
  if (missing !== undefined) throw new Error(`this benchmark makes network namespaces: it ${missing}`)
  return { rounds: above0('--rounds', values.rounds), seconds: above0('--seconds', values.seconds) }
}

function above0(flag: string, text: string): number {
  const number = Number(text)
  if (Number.isInteger(number) && number > 0) return number
  throw new Error(`${flag} ${JSON.stringify(text)}: expected a whole number above 0`)
}
