/** Draws charts with uplot. Loaded when a person comes near one. */
import UPlot, { type ChartAxis, type ChartData, type ChartLine, type ChartOptions } from 'uplot'
import { chartedLink, chartedService } from './charts.ts'
import { type Canvases, type Draw, colourOf } from './drawing.ts'
import type { PageModel } from './model.ts'
import { KEPT_MS, type Series, callSeries, linkSeries } from './plan-history.ts'

const HEIGHT = 200
/** Has place for `1000 ms`. */
const AXIS_WIDTH = 64
/** The highest value stays below the edge. */
const HEADROOM = 1.1

interface Line {
  readonly label: string
  readonly scale: string
  /** A dashed line, with its scale on the right. */
  readonly isSecond?: boolean
  readonly unit: string
  /** The top of the scale is at least this. */
  readonly least: number
}

/** RTT and loss of the chosen link. */
export function linkDrawing(model: PageModel, browser: Canvases): Draw {
  const lines: readonly Line[] = [
    { label: 'RTT', scale: 'ms', unit: ' ms', least: 1 },
    { label: 'Loss', scale: '%', unit: ' %', least: 110, isSecond: true },
  ]
  return chartDrawing(browser, lines, () => linkSeries(model.history.value, chartedLink(model)))
}

/** Calls a second of the chosen service. */
export function callsDrawing(model: PageModel, browser: Canvases): Draw {
  const lines: readonly Line[] = [{ label: 'Calls a second', scale: 'calls', unit: '/s', least: 1 }]
  return chartDrawing(browser, lines, () => callSeries(model.history.value, chartedService(model)))
}

/** Nothing moves by itself, and the pointer does nothing: the table has the numbers. */
function chartDrawing(browser: Canvases, lines: readonly Line[], read: () => Series): Draw {
  return (place) => {
    let before = ''
    let chart: UPlot | undefined
    const update = (): void => {
      const { times, values } = read()
      const data: ChartData = [times, ...values]
      const width = place.clientWidth
      const colours = ['soft', 'line', 'accent', 'warn'].map((name) => colourOf(browser, name))
      const now = JSON.stringify([width, colours])
      if (now === before && chart !== undefined) {
        chart.setData(data)
        return
      }
      before = now
      chart?.destroy()
      chart = new UPlot(optionsFor(lines, width, colours), data, place)
    }
    return { update, end: () => chart?.destroy() }
  }
}

function optionsFor(
  lines: readonly Line[],
  width: number,
  [soft = '', faint = '', first = '', second = '']: readonly string[],
): ChartOptions {
  const ticks = { stroke: faint, width: 1 }
  const axis = ({ scale, unit, isSecond = false }: Line): ChartAxis => ({
    ...{ scale, side: isSecond ? 1 : 3, size: AXIS_WIDTH, stroke: soft, ticks },
    grid: isSecond ? { show: false } : { stroke: faint, width: 0.5 },
    values: (_, all) => all.map((one) => `${Number(one.toFixed(3))}${unit}`),
  })
  const line = ({ label, scale, isSecond = false }: Line): ChartLine => ({
    ...{ label, scale, width: 2, stroke: isSecond ? second : first },
    ...(isSecond ? { dash: [6, 4] } : {}),
    ...{ spanGaps: false, points: { show: false } },
  })
  const ranges = lines.map(({ scale, least }) => {
    const range = (_: object, __: number | null, max: number | null): [number, number] => [
      0,
      Math.max(least, (max ?? 0) * HEADROOM),
    ]
    return [scale, { range }] as const
  })
  const last = (_: object, __: number | null, max: number | null): [number, number] => {
    const end = max ?? 0
    return [end - KEPT_MS / 1000, end]
  }
  return {
    ...{ width, height: HEIGHT, series: [{}, ...lines.map(line)] },
    axes: [
      { scale: 'x', stroke: soft, ticks, grid: { stroke: faint, width: 0.5 }, values: (_, all) => all.map(utcText) },
      ...lines.map(axis),
    ],
    scales: { x: { time: true, range: last }, ...Object.fromEntries(ranges) },
    ...{ legend: { show: false }, cursor: { show: false } },
  }
}

/** The rest of the page is in UTC too. */
function utcText(seconds: number): string {
  return new Date(seconds * 1000).toISOString().slice(11, 19)
}
