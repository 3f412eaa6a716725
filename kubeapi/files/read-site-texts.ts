/** Reads the site file and the folder of objects for planSiteCheck(). Writes nothing, and creates no state folder. */
import { statSync } from 'node:fs'
import { resolve, sep } from 'node:path'
import { messageOf } from '../../runtime/runtime.ts'
import { isMissing } from './atomic-write.ts'
import { type FileText, type ReservedRange, type SiteCheck, type SiteTexts, planSiteCheck } from './plan-site-check.ts'
import { InvalidFileError } from './problem-board.ts'
import { parseSiteDocument, readSiteText } from './site-file.ts'
import { readUserFile } from './user/user-file.ts'
import { yamlFiles } from './user/user-objects.ts'

/** Reads the files of a site and gives all of their problems. `ranges` as for planSiteCheck(). Never throws for them. */
export async function checkSite(path: string, ranges: readonly ReservedRange[] = []): Promise<SiteCheck> {
  return planSiteCheck(await readSiteTexts(path), ranges)
}

/** `path` is the path of the site file as the user writes it. */
export async function readSiteTexts(path: string): Promise<SiteTexts> {
  try {
    const text = await readSiteText(path)
    const { objects, config } = parseSiteDocument(path, text)
    return { site: { file: path, text }, objects: readFolder(objects, config?.state) }
  } catch (error) {
    if (!(error instanceof InvalidFileError)) throw error
    const unreadable = error.problems.map(({ reason }) => reason).join('; ')
    return { site: { file: path, unreadable }, objects: [] }
  }
}

/** The state folder may lie inside the folder of objects; the files in it are not the user's. */
function readFolder(folder: string, state: string | undefined): SiteTexts['objects'] {
  try {
    if (!statSync(folder).isDirectory()) return 'expected a folder'
    const isState = (file: string): boolean => state !== undefined && resolve(file).startsWith(`${state}${sep}`)
    return yamlFiles(folder)
      .filter((file) => !isState(file))
      .flatMap((file): FileText[] => {
        const reading = readUserFile(file, file)
        if (reading.is === 'missing') return []
        if (reading.is === 'unreadable') return [{ file, unreadable: reading.problem.reason }]
        return [{ file, text: reading.text }]
      })
  } catch (error) {
    return isMissing(error) ? 'no such folder' : messageOf(error)
  }
}
