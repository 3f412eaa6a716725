/** A console on loopback, whose facts a test changes while it runs. */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import { type ConsoleFacts, type PageFiles, readPageFiles, runConsole } from '../../../console/console.ts'
import { memberObjects, pathObjects } from '../../explain/path/two-members.ts'
import { SELF, factSet } from '../../support/objects/member-facts.ts'
import { ROOT } from '../../support/source-tree.ts'

export interface RunningConsole {
  /** `http://127.0.0.1:9480/` */
  readonly url: string
  /** The next look finds these. */
  show(facts: ConsoleFacts): void
  /** Every look fails with this from now on. */
  fail(message: string): void
  stop(): Promise<void>
}

export interface ConsoleInit {
  readonly port?: number
  readonly token?: string
}

const LOOK_MS = 50
/** What every path is explained by, whatever the page shows else. */
const SIDE = { facts: factSet(memberObjects(SELF)), objects: pathObjects(SELF) }

/** Runs until the test ends, or until it is stopped. */
export async function startConsole(
  t: Pick<Test, 'teardown'>,
  facts: ConsoleFacts,
  { port = 0, token }: ConsoleInit = {},
): Promise<RunningConsole> {
  const stopping = new AbortController()
  const opened = Promise.withResolvers<string>()
  let look = (): Promise<ConsoleFacts> => Promise.resolve(facts)
  const ended = runConsole(
    {
      ...{ listen: { host: '127.0.0.1', port }, page: builtPage(), token },
      source: { facts: () => look(), everyMs: LOOK_MS, pathSide: () => Promise.resolve(SIDE) },
      onOpen: opened.resolve,
    },
    stopping.signal,
  )
  const stop = (): Promise<void> => {
    stopping.abort()
    return ended
  }
  t.teardown(stop)
  ended.catch(opened.reject)
  return {
    url: await opened.promise,
    show: (next) => (look = () => Promise.resolve(next)),
    fail: (message) => (look = () => Promise.reject(new Error(message))),
    stop,
  }
}

let built: PageFiles | undefined

/** The page of these sources, built once for this process. The page in dist/ may be that of others. */
export function builtPage(): PageFiles {
  built ??= buildPage()
  return built
}

function buildPage(): PageFiles {
  const folder = mkdtempSync(join(tmpdir(), 'sealane-page-'))
  try {
    execFileSync(process.execPath, [join(ROOT, 'scripts', 'build-page.ts'), folder], {
      stdio: ['ignore', 'ignore', 'inherit'],
    })
    return readPageFiles([folder])
  } finally {
    rmSync(folder, { recursive: true })
  }
}
