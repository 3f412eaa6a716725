/** JSON of a tool of the kernel, which may print half of it when what it lists changes meanwhile. */
import type { RunCommand } from '../run-command.ts'

/** How the tools are run. */
export interface ToolRun {
  readonly run: RunCommand
  readonly timeoutMs: number
  readonly signal: AbortSignal
}

const TRIES = 3

/**
 * Throws where the tool prints no JSON again and again, and where it fails; `none`, where it is given, is what failing or
 * silence means.
 */
export async function jsonFrom(
  { run, timeoutMs, signal }: ToolRun,
  [name, ...args]: readonly [string, ...string[]],
  none?: unknown,
): Promise<unknown> {
  for (let tries = 1; ; tries += 1) {
    const { code, stdout, stderr } = await run(name, args, { signal, timeoutMs })
    if (none !== undefined && (code !== 0 || stdout.trim() === '')) return none
    if (code !== 0) throw new Error(`${name} ${args.join(' ')}: ${stderr.trim().slice(0, 200)}`)
    try {
      return JSON.parse(stdout)
    } catch (cause) {
      if (tries === TRIES) throw new Error(`${name} ${args.join(' ')}: it prints no JSON`, { cause })
    }
  }
}
