/** The results of exports, and of imports whose exports go. */
import type { Test } from 'tap'
import { OBJECT_LABEL } from '../joined/demanded-marks.ts'
import type { Site } from '../support/callers.ts'
import type { Json } from '../support/kube-request.ts'
import {
  type ImportObject,
  awaitImport,
  exportService,
  exportText,
  findImport,
  importText,
  serviceImportPath,
  unexportService,
  validMessage,
} from '../support/service-imports.ts'
import { namespace, same } from './expect.ts'
import { EXPORT_CASES, type ExportCase } from './export-cases.ts'
import type { Shop } from './shop.ts'

const OWN_LABEL = 'app.kubernetes.io/managed-by'

export async function exportStory(t: Test, { c1, c2, both }: Shop): Promise<void> {
  for (const { api } of both) await api.apply('/api/v1/namespaces/kinds', namespace('kinds'))
  await Promise.all(
    EXPORT_CASES.map(async ({ name, first, second, import: wanted }) => {
      await putAndExport(c1, name, first)
      if (wanted !== 'none') await awaitImport(c1, 'kinds', name)
      if (second !== undefined) await putAndExport(c2, name, second)
    }),
  )
  for (const one of EXPORT_CASES) await checkCase(t, one, both)
}

async function putAndExport(site: Site, name: string, { service, export: spec }: ExportCase['first']): Promise<void> {
  if (service !== undefined) await site.api.apply(`/api/v1/namespaces/kinds/services/${name}`, service)
  await exportService(site, 'kinds', name, spec)
}

async function checkCase(t: Test, row: ExportCase, both: readonly Site[]): Promise<void> {
  const { id, name, says } = row
  const title = `${[id, name].filter((word) => word !== '').join(' ')}: ${says}`
  const exporters = row.second === undefined ? both.slice(0, 1) : both
  for (const site of exporters)
    await same(t, () => exportText(site, 'kinds', name), row.exports, `${title}, ${site.name}`)
  const [c1] = both
  if (row.message !== undefined && c1 !== undefined)
    t.match(await validMessage(c1, 'kinds', name), row.message, `${title}, what it says`)
  for (const site of both) {
    await same(
      t,
      async () => importText(await findImport(site, 'kinds', name)),
      row.import,
      `${title}, in ${site.name}`,
    )
    if (row.marks !== undefined)
      t.same(marksOf(await awaitImport(site, 'kinds', name)), row.marks, `${title}, the marks`)
  }
}

function marksOf({ metadata }: ImportObject): Json {
  const labels = Object.entries(metadata.labels ?? {}).filter(([key]) => key !== OWN_LABEL && key !== OBJECT_LABEL.key)
  return { labels: Object.fromEntries(labels), annotations: metadata.annotations ?? {} }
}

export async function withdrawStory(t: Test, { c1, c2, both }: Shop): Promise<void> {
  const imported = EXPORT_CASES.filter((row) => row.import !== 'none')
  const two = imported.filter((row) => row.second !== undefined)
  const before = await Promise.all(two.map(({ name }) => awaitImport(c1, 'kinds', name)))
  await Promise.all(EXPORT_CASES.map(({ name }) => unexportService(c1, 'kinds', name)))
  for (const [i, { name }] of two.entries()) {
    const from = async (): Promise<string> =>
      importText(await findImport(c1, 'kinds', name))
        .split(' from ')
        .at(-1) ?? ''
    await same(t, from, 'c2', `${name}: the second exporter is left`)
    t.equal((await awaitImport(c1, 'kinds', name)).metadata.uid, before[i]?.metadata.uid, `${name}: it was never gone`)
    await same(t, () => exportText(c2, 'kinds', name), 'Valid Ready', `${name}: no conflict any more`)
  }
  await Promise.all(two.map(({ name }) => unexportService(c2, 'kinds', name)))
  for (const site of both) {
    const left = async (): Promise<string> =>
      (await site.api.list(serviceImportPath('kinds', ''))).map(({ metadata }) => metadata.name).join(' ')
    await same(t, left, '', `nothing is left in ${site.name}`)
  }
}
