/** A site in a temporary folder, for the tests of the file driver. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Test } from 'tap'
import type { ObjectCache } from '../../../kubeapi/cluster-api.ts'
import { FileApi, type FileApiDeps, type FileApiInit } from '../../../kubeapi/files/file-api.ts'
import type { Kind, ObjectKinds } from '../../../model/objects.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

export class FileSite {
  readonly folder: string
  readonly objects: string
  readonly state: string
  readonly logger = new CapturingLogger()
  readonly #t: Test

  constructor(t: Test, state = 'state') {
    this.#t = t
    this.folder = temporaryFolder(t)
    this.objects = join(this.folder, 'objects')
    this.state = join(this.folder, state)
    mkdirSync(this.objects)
  }

  open(
    init: Pick<FileApiInit, 'rescanMs' | 'once' | 'notesAfterMs' | 'severalHubs'> = {},
    deps: Partial<Pick<FileApiDeps, 'clock' | 'syncs'>> = {},
  ): FileApi {
    const api = new FileApi(
      { clock: new SystemClock(), logger: this.logger, ...deps },
      { objects: this.objects, state: this.state, ...init },
    )
    this.#t.teardown(() => api.close())
    return api
  }

  /** Writes the file in place, as `cat >` does. */
  write(file: string, text: string): void {
    const path = join(this.objects, file)
    mkdirSync(dirname(path), { recursive: true })
    writeFileSync(path, text)
  }

  path(file: string): string {
    return join(this.objects, file)
  }

  readState(file: string): string {
    return readFileSync(join(this.state, file), 'utf8')
  }

  /** The warnings, without the path of this test's folder. */
  warnings(): string[] {
    return this.logger.messages('warn').map((message) => message.replaceAll(`${this.folder}/`, ''))
  }
}

export async function synced<K extends Kind>(api: FileApi, kind: K): Promise<ObjectCache<ObjectKinds[K]>> {
  const cache = api.cache(kind)
  await cache.whenSynced(AbortSignal.timeout(30_000))
  return cache
}

export function names(cache: ObjectCache<ObjectKinds[Kind]>): string {
  return cache
    .list()
    .map(({ metadata }) => metadata.name)
    .join(' ')
}

/** The YAML of one Service. */
export function serviceYaml(name: string, port: number | string = 80): string {
  return `apiVersion: v1
kind: Service
metadata:
  name: ${name}
  namespace: shop
spec:
  ports:
    - port: ${port}
`
}

export const wait = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))
