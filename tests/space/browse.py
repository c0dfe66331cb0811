"""Open a page in Chromium without a screen, wait until it is done, and print what a script finds in it, as JSON.

It runs in the environment of requirements.txt: browse.py ADDRESS WIDTH SCRIPT
"""

import sys

from PyQt6.QtCore import QTimer, QUrl
from PyQt6.QtWebEngineWidgets import QWebEngineView
from PyQt6.QtWidgets import QApplication

address, width, script = sys.argv[1:]
application = QApplication(["browse"])
view = QWebEngineView()
view.resize(int(width), 900)
view.show()
view.load(QUrl(address))


def done(answer):
    print(answer)
    application.quit()


def look(is_done=False):
    if is_done:
        view.page().runJavaScript(f"JSON.stringify({script})", done)
    else:
        ready = "document.readyState === 'complete' && document.querySelector('main')?.ariaBusy === 'false'"
        QTimer.singleShot(100, lambda: view.page().runJavaScript(ready, look))


look()
application.exec()
